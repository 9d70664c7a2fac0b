"""`headwater keys`: API keys with scopes and limits, in the keys file; keys that sign records."""

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from headwater.access.key_format import check_key_name, generate_api_key, hash_of
from headwater.access.key_ring import has_api_keys
from headwater.access.keys_file import ApiKey, changing_keys, read_keys
from headwater.cli.commands import NO_FILE, STORE, CommandCall, Commands, option_names, run
from headwater.cli.output import EMPTY, note
from headwater.core.durations import to_timedelta
from headwater.errors import FieldError, InvalidInputError
from headwater.model.callers import ALL_SCOPES, AccessScope
from headwater.records.signing import Ed25519Key, generate_key, parse_keyring, public_text
from headwater.store.feature_store import FeatureStore

app = Commands()
keys = Commands(
    app, "keys", "Create, list and revoke API keys; generate keys that sign records.", file=STORE
)
signing = Commands(
    keys, "signing", "Generate keys that sign records, and print their public halves.", file=STORE
)


@keys.command()
def create(
    call: CommandCall,
    name: str,
    *,
    scope: list[str],
    entity: list[str] | None = None,
    context: list[str] | None = None,
    index: list[str] | None = None,
    tenant: str | None = None,
    entity_id: Annotated[list[str] | None, typer.Option("--id")] = None,
    expires: str | None = None,
    rate_limit: Annotated[float | None, typer.Option(min=0)] = None,
) -> None:
    """Create an API key and print it, once. The keys file stores only its hash.

    Args:
        name: Name of the key, shown in logs and records.
        scope: What the key allows: ingest, read, assemble, records, outcomes, metrics or admin.
            Repeat it for several.
        entity: Only this entity. Repeat it for several.
        context: Only this context. Repeat it for several.
        index: Only this index. Repeat it for several.
        tenant PREFIX: Only entity ids with this prefix.
        entity_id: Only this entity id, and what belongs to it. Repeat it for several.
        expires DURATION: Valid for this long, such as 90d; by default the key does not expire.
        rate_limit: Requests per second, in place of `http.rate_limit`.
    """
    check_key_name(name)
    now = datetime.now(UTC).replace(microsecond=0)
    with option_names():
        expiry = None if expires is None else now + to_timedelta(expires)
    key = generate_api_key(name)
    row = ApiKey(
        hash=hash_of(key),
        scopes=frozenset(map(_scope, scope)),
        entities=frozenset(entity) if entity else None,
        contexts=frozenset(context) if context else None,
        indexes=frozenset(index) if index else None,
        tenant=tenant,
        ids=frozenset(entity_id) if entity_id else None,
        created=now,
        expires=expiry,
        rate_limit=rate_limit,
    )
    row.check()
    path, settings = _path(call.local), call.local.settings
    is_first = not settings.oidc.issuer and not has_api_keys(settings)

    def add(keys: dict[str, ApiKey]) -> None:
        if name in keys:
            raise InvalidInputError(
                f"the key {name!r} exists in {path}; choose another name, or revoke it first with "
                f"`headwater keys revoke {name}`"
            )
        keys[name] = row

    # The log cannot be redacted, so it has hashes in place of ids.
    hashed = row.ids and sorted(sha256(each.encode()).hexdigest() for each in row.ids)
    _change(call.local, add, "keys.create", name, **(_facts(row) | {"ids": hashed}))
    notes = [f"This key is secret and is not shown again. {path} stores only its hash."]
    if is_first:
        notes += [
            "It is the first key: servers with this keys file now refuse requests without a key."
        ]
    call.show({"name": name, "key": key, **_facts(row)}, key, *notes)


@keys.command("list")
def list_keys(call: CommandCall) -> None:
    """List the API keys of the keys file: names, scopes, limits and expiry."""
    path = _path(call.local)
    keys = read_keys(path)
    now = datetime.now(UTC)
    if not keys and not call.as_json:
        note(f"{path} has no keys; create one with `headwater keys create NAME --scope read`.")
        return
    rows = [
        (name, ", ".join(sorted(key.scopes)), _limits(key), _expiry(key, now))
        for name, key in keys.items()
    ]
    plain = [{"name": name, **_facts(key)} for name, key in keys.items()]
    call.show_table(plain, ("name", "scopes", "limits", "expires"), rows)


@keys.command(has_json=False)
def revoke(call: CommandCall, name: str) -> None:
    """Revoke an API key: running servers refuse it within a second or two.

    Args:
        name: Name of the key.
    """

    def remove(keys: dict[str, ApiKey]) -> None:
        if name not in keys:
            raise FieldError.unknown(f"{_path(call.local)} has no key", name, keys)
        del keys[name]

    _change(call.local, remove, "keys.revoke", name)
    note(f"Revoked the key {name!r}.")


def _path(store: FeatureStore) -> Path:
    return Path(store.settings.keys_file).absolute()


def _change(
    store: FeatureStore,
    change: Callable[[dict[str, ApiKey]], None],
    action: str,
    name: str,
    **parameters: object,
) -> None:
    """Change the keys file; the audit log of the store shows who did it."""

    async def run_change(store: FeatureStore) -> None:
        given = {field: value for field, value in parameters.items() if value is not None}
        async with store.audited(action, name, **given):
            with changing_keys(_path(store)) as keys:
                change(keys)

    # A first check, so that a mistake neither creates a store nor is logged as an action.
    change(read_keys(_path(store)))
    run(store, run_change, create=True)


def _scope(text: str) -> AccessScope:
    for scope in ALL_SCOPES:
        if text == scope:
            return scope
    raise FieldError.unknown("unknown scope", text, sorted(ALL_SCOPES))


def _facts(key: ApiKey) -> dict[str, object]:
    return {
        "scopes": sorted(key.scopes),
        "entities": key.entities and sorted(key.entities),
        "contexts": key.contexts and sorted(key.contexts),
        "indexes": key.indexes and sorted(key.indexes),
        "tenant": key.tenant,
        "ids": key.ids and sorted(key.ids),
        "created": key.created,
        "expires": key.expires,
        "rate_limit": key.rate_limit,
    }


def _limits(key: ApiKey) -> str:
    names = {
        "entities": key.entities,
        "contexts": key.contexts,
        "indexes": key.indexes,
        "ids": key.ids,
    }
    parts = [f"{name} {', '.join(sorted(of))}" for name, of in names.items() if of]
    if key.tenant:
        parts.append(f"tenant {key.tenant}")
    if key.rate_limit is not None:
        parts.append(f"{key.rate_limit:g}/s")
    return "; ".join(parts) or EMPTY


def _expiry(key: ApiKey, now: datetime) -> str:
    if key.expires is None:
        return EMPTY
    day = key.expires.date().isoformat()
    return f"expired {day}" if key.expires <= now else day


@signing.command(file=NO_FILE)
def generate(call: CommandCall, key_id: str, *, shared: bool = False) -> None:
    """Print a new key for the setting `signing_key`. Headwater does not store it.

    Args:
        key_id: Name of the key; every record shows it.
        shared: Generate a secret for HMAC-SHA256 instead of an Ed25519 key pair.
    """
    key = generate_key(key_id, "HMAC-SHA256" if shared else "Ed25519")
    call.show(
        {"key_id": key_id, "signing_key": key},
        key,
        "This key is secret. Put it first in HEADWATER_SIGNING_KEY, and keep the older keys after "
        "it, separated by commas.",
    )


@signing.command()
def public(call: CommandCall) -> None:
    """Print the public halves of the configured Ed25519 keys, one on each line, for auditors."""
    keys = parse_keyring(call.local.settings.signing_key).keys
    pairs = {key.key_id: public_text(key) for key in keys if isinstance(key, Ed25519Key)}
    if not pairs:
        raise InvalidInputError(
            "no Ed25519 key is configured, and a shared secret has no public half; generate one "
            "with `headwater keys signing generate KEY_ID` and put it into HEADWATER_SIGNING_KEY"
        )
    notes = [
        f"Key {key.key_id!r} is a shared secret, which has no public half."
        for key in keys
        if not isinstance(key, Ed25519Key)
    ]
    plain = [{"key_id": key_id, "public_key": text} for key_id, text in pairs.items()]
    call.show(plain, "\n".join(pairs.values()), *notes)
