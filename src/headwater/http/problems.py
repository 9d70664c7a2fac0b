"""Responses to requests that failed: RFC 9457 problem details."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headwater import errors
from headwater.access import errors as access_errors
from headwater.core.logging import log
from headwater.core.tracebacks import format_traceback
from headwater.http import request_errors
from headwater.http.responses import ApiResponse

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:headwater:problem:"

_UNAVAILABLE = 503
_RETRY_AFTER = {"retry-after": "1"}
_SEE_LOG = "; see the server log for the cause"


class Rule(NamedTuple):
    """How one class of errors is reported to a caller."""

    status: int
    name: str
    title: str
    members: tuple[str, ...] = ()
    """Attributes of the error that the problem includes."""
    detail: str = "{0}"
    """A format of the error. Messages of user code and paths of files stay in the log."""


_INTERNAL = Rule(500, "internal", "Internal server error", detail="the request failed" + _SEE_LOG)

_EMBEDDING_FAILED = Rule(
    _UNAVAILABLE,
    "embedding-failed",
    "Embedding failed",
    ("embedder",),
    "embedding with {0.embedder} failed" + _SEE_LOG,
)

# The first class in an error's method resolution order that has a row decides.
RULES: dict[type[BaseException], Rule] = {
    request_errors.MalformedError: Rule(400, "malformed", "Malformed request"),
    access_errors.KeyRequiredError: Rule(401, "key-required", "API key required"),
    access_errors.ForeignRequestError: Rule(
        403, "foreign-request", "Request from another machine or site"
    ),
    access_errors.ScopeError: Rule(403, "scope", "Key without the scope", ("key", "scope")),
    request_errors.NoRouteError: Rule(404, "no-route", "Route not found"),
    errors.NotFoundError: Rule(404, "not-found", "Not found"),
    errors.UnknownNameError: Rule(404, "unknown-name", "Name not declared", ("name", "nearest")),
    errors.UnknownContextError: Rule(404, "unknown-record", "Record not found", ("ref",)),
    errors.UnknownDocumentError: Rule(
        404, "unknown-document", "Document not found", ("index", "document")
    ),
    request_errors.MethodError: Rule(405, "method", "Method not allowed"),
    errors.ImmutableRecordError: Rule(
        409, "immutable-record", "Record is immutable", ("context_id", "stored", "given")
    ),
    errors.EventConflictError: Rule(
        409, "event-conflict", "Event id accepted with other content", ("conflicts",)
    ),
    errors.IndexMismatchError: Rule(
        409,
        "index-mismatch",
        "Index was built with another embedder",
        ("index", "built_with", "declared"),
    ),
    request_errors.TooLargeError: Rule(413, "too-large", "Body too large", ("limit",)),
    request_errors.MediaTypeError: Rule(415, "media-type", "Unsupported media type"),
    errors.InvalidInputError: Rule(422, "invalid-input", "Invalid input"),
    errors.FieldError: Rule(422, "invalid-input", "Invalid input", ("index", "field", "nearest")),
    errors.LooserOverrideError: Rule(
        422, "looser-override", "Option is looser than declared", ("option",)
    ),
    errors.DurationError: Rule(422, "invalid-duration", "Invalid duration"),
    errors.EventError: Rule(422, "invalid-event", "Invalid event", ("index",)),
    errors.FeatureValueError: Rule(
        422, "invalid-feature-value", "Value does not match feature type"
    ),
    errors.AmbiguousRefError: Rule(422, "ambiguous-ref", "Ambiguous reference", ("ref", "ids")),
    errors.RecordValueError: Rule(
        422, "invalid-record-value", "Value cannot be recorded exactly", ("pointer",)
    ),
    errors.TokenBudgetError: Rule(
        422, "token-budget", "Token budget exceeded", ("needed", "available", "items")
    ),
    errors.FreshnessSLAError: Rule(
        422, "not-fresh", "Freshness SLA not met", ("context", "violations", "context_id")
    ),
    access_errors.TooManyRequestsError: Rule(429, "too-many-requests", "Too many requests"),
    errors.FeatureFailedError: Rule(
        500,
        "feature-failed",
        "Feature computation failed",
        ("feature", "entity_id"),
        "feature {0.feature!r} failed for {0.entity_id!r}" + _SEE_LOG,
    ),
    errors.RetrieverFailedError: Rule(
        500,
        "retriever-failed",
        "Retriever failed",
        ("retriever",),
        "retriever {0.retriever!r} failed" + _SEE_LOG,
    ),
    errors.RerankFailedError: Rule(
        500,
        "rerank-failed",
        "Re-ranking failed",
        ("index",),
        "re-ranking the results of index {0.index!r} failed" + _SEE_LOG,
    ),
    errors.ContextFailedError: Rule(
        500,
        "context-failed",
        "Context assembly failed",
        ("context",),
        "context {0.context!r} failed" + _SEE_LOG,
    ),
    errors.DamagedRecordError: Rule(
        500, "damaged-record", "Record is damaged", ("context_id", "part")
    ),
    errors.ConfigError: Rule(500, "not-configured", "Server is not configured for this"),
    errors.SignatureError: Rule(500, "not-signed", "Record could not be signed"),
    errors.EmbeddingError: _EMBEDDING_FAILED,
    # Names the variables of the key, never the key.
    errors.MissingApiKeyError: _EMBEDDING_FAILED._replace(detail="{0}"),
    request_errors.TooManyConnectionsError: Rule(
        _UNAVAILABLE, "too-many-connections", "Too many connections"
    ),
    request_errors.BacklogError: Rule(_UNAVAILABLE, "backlog", "Event backlog full"),
    errors.RecordingError: Rule(
        _UNAVAILABLE,
        "not-recorded",
        "Context could not be recorded",
        ("context_id",),
        "context {0.context_id} was not recorded, and record.required is set" + _SEE_LOG,
    ),
    errors.BackendError: Rule(
        _UNAVAILABLE, "backend", "Store unavailable", detail="the store is unavailable" + _SEE_LOG
    ),
    errors.StoreLostError: Rule(_UNAVAILABLE, "store-lost", "Store lost its data", ("server",)),
    errors.RetrieverTimeoutError: Rule(
        504, "retriever-timeout", "Retriever timed out", ("retriever", "seconds")
    ),
    errors.ContextTimeoutError: Rule(
        504, "context-timeout", "Context timed out", ("context", "seconds")
    ),
}


class Problem(msgspec.Struct, frozen=True):
    """The members that every problem has."""

    type: str
    title: str
    status: int
    detail: str


def rule_of(error: Exception) -> Rule:
    """Return the row of the table that applies to an error."""
    return next((RULES[kind] for kind in type(error).__mro__ if kind in RULES), _INTERNAL)


def problem_response(error: Exception) -> ApiResponse:
    """Return the response to a request that ended in an error."""
    rule = rule_of(error)
    name = f"unknown-{error.kind}" if isinstance(error, errors.UnknownNameError) else rule.name
    problem = Problem(TYPE_PREFIX + name, rule.title, rule.status, rule.detail.format(error))
    body = msgspec.json.encode(msgspec.structs.asdict(problem) | _members(error, rule))
    headers = error.headers if isinstance(error, access_errors.RequestError) else {}
    if rule.status == _UNAVAILABLE:
        headers = headers | _RETRY_AFTER
    return ApiResponse(body, rule.status, headers, MEDIA_TYPE)


def _members(error: Exception, rule: Rule) -> dict[str, Any]:
    members = {name: getattr(error, name) for name in rule.members}
    return {name: value for name, value in members.items() if value not in (None, "")}


def log_problem(error: Exception, method: str, route: str, *, private: bool) -> None:
    """Log an error of the server; if ``private``, without the messages of user code."""
    if rule_of(error).status < 500 or isinstance(error, request_errors.BacklogError):
        return
    fields = {"method": method, "route": route, "error": type(error).__name__}
    # Messages of the store itself never contain the data that it holds.
    if not private or isinstance(error, errors.BackendError | errors.RecordingError):
        fields["error"] += f": {error}"
    if not isinstance(error, errors.BackendError):
        fields["traceback"] = format_traceback(error, private=private)
    log.error("request failed", **fields)
