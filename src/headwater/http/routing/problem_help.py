"""What each problem type means and what a client does about it, for the documentation."""

from __future__ import annotations

from typing import NamedTuple


class Help(NamedTuple):
    """When a problem occurs, and what to do then."""

    cause: str
    remedy: str


_SEE_LOG = "Search the server log for the `request_id`."
_RETRY = "Retry after `Retry-After` seconds"
_DECLARED = "`GET /api/store` lists all declared names."

KINDS_OF_NAMES = ("feature", "entity", "context", "index", "retriever", "event", "source")
"""What an unknown name may be of; each is a problem type, such as ``unknown-feature``."""

HELP: dict[str, Help] = {
    "malformed": Help(
        "the body is not JSON, the path or the query is not UTF-8, or the request is not valid "
        "HTTP/1.1",
        "Correct the request; `detail` names the place. A retry fails again.",
    ),
    "key-required": Help(
        "the API key or token is missing, wrong, expired or revoked",
        "Send a valid key as `X-API-Key` or as `Authorization: Bearer`.",
    ),
    "foreign-request": Help(
        "the server has no key and serves only its own machine, and the request is from elsewhere",
        "Set `HEADWATER_API_KEY` on the server, and send the key.",
    ),
    "scope": Help(
        "the key is valid and does not have the scope of the route",
        "Use a key that has it; `headwater keys create` makes one.",
    ),
    "limit": Help(
        "the key is limited to other entities, contexts, indexes or a tenant, or the route does "
        "not apply limits",
        "Ask only for what the key allows, or use a key without that limit.",
    ),
    "no-route": Help("no route has this path", "`/openapi.json` lists all routes."),
    "not-found": Help(
        "the request names something that does not exist", "Correct the name; see `detail`."
    ),
    **{
        f"unknown-{kind}": Help(
            f"no {kind} has this name; `nearest` is a similar one, if there is one",
            f"Correct the name. {_DECLARED}",
        )
        for kind in KINDS_OF_NAMES
    },
    "unknown-record": Help(
        "no recorded context has this id or hash, or it was pruned",
        "`GET /v1/contexts` lists the recorded contexts.",
    ),
    "unknown-document": Help(
        "the index has no document with this id", "Percent-encode the id, also its slashes."
    ),
    "unknown-dead-letter": Help(
        "no dead letter has this id; another call may have redriven or discarded it",
        "`GET /v1/dead-letters` lists them.",
    ),
    "unknown-group": Help("no consumer group has this name", "`GET /v1/groups` lists all groups."),
    "group-in-use": Help(
        "the consumer group has live workers, so it cannot be dropped", "Stop the workers first."
    ),
    "feature-in-use": Help(
        "live workers run the feature, so it cannot be dropped",
        "Remove it from the features file and restart the workers, or stop them.",
    ),
    "store-mismatch": Help(
        "Redis and Postgres hold different stores, or one of them is an older copy",
        "Correct the addresses; if they are right, rebuild with `adopt`.",
    ),
    "method": Help(
        "the path has no route with this method", "Use one of the methods in the `Allow` header."
    ),
    "request-timeout": Help(
        "the head or the body of the request did not arrive in time",
        "Send it faster, or raise `http.head_timeout` or `http.transfer_timeout`.",
    ),
    "event-conflict": Help(
        "events repeat an id of their entity with another type, payload or timestamp, or their "
        "entity was erased (`is_erased`); nothing of them was stored",
        "Give each new event its own `event_id`; `conflicts` lists the events. To let an erased "
        "entity return, forget it again with `allow_return`.",
    ),
    "immutable-record": Help(
        "another record with this id exists", "Do not write records with ids of your own."
    ),
    "index-mismatch": Help(
        "the index was built with another embedder than the declared one",
        "Run `headwater index reindex`, or declare the index as it was.",
    ),
    "entity-changed": Help(
        "the feature is declared for another entity than its stored values belong to",
        "Declare the entity under its stored name, or drop or backfill the feature; see `detail`.",
    ),
    "too-large": Help(
        "the body is larger than `http.max_body_bytes`, or a file than `http.max_upload_bytes`",
        "Send less at once, or raise the setting; `limit` is in bytes.",
    ),
    "url-too-long": Help(
        "the URL is longer than 16 KiB", "Use a route that takes the names in its body."
    ),
    "headers-too-large": Help(
        "the request has more than 100 headers, or more than 64 KiB of them",
        "Send fewer headers; often cookies of other applications are the cause.",
    ),
    "media-type": Help(
        "the route does not accept this `Content-Type`", "Send one of the types in `detail`."
    ),
    "invalid-input": Help(
        "a field, a parameter or their combination is not valid",
        "Correct `field`; in a batch, that of the item `index`. `detail` says how.",
    ),
    "looser-override": Help(
        "the call asks for more than the context declares",
        "A call may only tighten `max_tokens` and `freshness_sla`; change the declaration, or its "
        "`allow_looser`.",
    ),
    "invalid-duration": Help(
        "a duration cannot be read", "Write `500ms`, `30s`, `5m`, `2h` or `7d`."
    ),
    "invalid-event": Help(
        "an id or a type of an event is too long, empty or not printable, or its time is too far "
        "in the future; nothing of its batch was stored",
        "Correct the event; in a batch, the item `index`.",
    ),
    "invalid-feature-value": Help(
        "the stored value does not match an annotation that was changed later",
        "Run `headwater backfill`, or restore the annotation.",
    ),
    "ambiguous-ref": Help(
        "several contexts begin with this reference; `ids` lists some",
        "Send more characters of the id.",
    ),
    "invalid-record-value": Help(
        "an argument cannot be recorded exactly, so the function did not run",
        "Change the argument at `pointer`, for example send a large number as text.",
    ),
    "token-budget": Help(
        "the required items need more tokens than are available",
        "Raise `max_tokens`, shorten the `items`, or make one of them optional.",
    ),
    "not-fresh": Help(
        "a value is older than the freshness SLA of a strict context; the refusal is recorded",
        "Wait for the workers, see `headwater lag`; `violations` names the values.",
    ),
    "too-many-values": Help(
        "entity ids times features exceed `http.max_values`",
        "Send several requests, or raise the setting.",
    ),
    "too-many-requests": Help(
        "the key exceeds its rate limit or `http.rate_limit`, or the address "
        "`http.address_rate_limit`",
        f"{_RETRY}, and send fewer requests or larger batches.",
    ),
    "too-many-wrong-keys": Help(
        "the address has sent ten wrong keys in ten seconds, and this key was not valid before",
        f"{_RETRY}, with the right key.",
    ),
    "disconnected": Help(
        "the client closed its connection before the response; only metrics and the access log "
        "show it",
        "Raise the timeout of the client.",
    ),
    "feature-failed": Help("the function of a feature raised an error", _SEE_LOG),
    "retriever-failed": Help(
        "the function of a retriever raised an error or returned invalid results", _SEE_LOG
    ),
    "rerank-failed": Help(
        "the function `rerank` of a search raised an error or returned something else than its "
        "chunks",
        _SEE_LOG,
    ),
    "context-failed": Help(
        "the function of a context raised an error, or used or returned something invalid", _SEE_LOG
    ),
    "damaged-record": Help(
        "the stored bytes of a record do not match its hash",
        "Run `headwater context verify` for details, and restore a backup.",
    ),
    "not-signed": Help(
        "`signature_mode` is `required`, and no key in `signing_key` can sign",
        "Set `HEADWATER_SIGNING_KEY` on the server.",
    ),
    "not-configured": Help(
        "a setting, a variable or an extra is missing on the server", "Set what `detail` names."
    ),
    "internal": Help("an error that the server did not expect", f"{_SEE_LOG} Please report it."),
    "embedding-failed": Help(
        "the provider of embeddings failed, refused the texts, or has no key on the server",
        f"{_RETRY}. If it stays, see the log, or set the variable that `detail` names.",
    ),
    "token-keys-unavailable": Help(
        "the keys in `oidc.jwks`, which verify tokens, could not be read; API keys work",
        f"{_RETRY}. If it stays, check the setting and the identity provider.",
    ),
    "backlog": Help(
        "with these events, more than `ingest.max_backlog` would wait to be processed",
        f"{_RETRY}; if it lasts, start more workers.",
    ),
    "not-recorded": Help(
        "the record could not be stored, and `record.required` is set; the context was withheld",
        f"{_RETRY}. {_SEE_LOG}",
    ),
    "too-many-connections": Help(
        "the server has as many open connections as its limit of open files allows, less a "
        "reserve for the store, or the address has its share of them",
        f"{_RETRY}, reuse connections, or raise `ulimit -n`.",
    ),
    "too-many-calls": Help(
        "the process runs as many requests for this operation as it may",
        f"{_RETRY}, or start more processes.",
    ),
    "slow-call": Help(
        "the operation took longer than it may take", "Ask for less, or for a shorter time."
    ),
    "too-many-tails": Help(
        "the process serves as many live tails of the event log as it may",
        f"{_RETRY}, close tails that are not needed, or list events instead.",
    ),
    "store-lost": Help(
        "Redis or SQLite has lost its data, so every value is missing",
        "Follow `detail`; `headwater rebuild` restores values from history.",
    ),
    "backend": Help(
        "a server of the store is unavailable, or its disk is full", f"{_RETRY}. {_SEE_LOG}"
    ),
    "retriever-timeout": Help(
        "a retriever took longer than its timeout", "Raise its `timeout` or `context.timeout`."
    ),
    "context-timeout": Help(
        "a context took longer than its timeout", "Raise its `timeout` or `context.timeout`."
    ),
}
"""By the name of the problem: the end of its ``type``."""
