"""`headwater keys`: API keys with scopes and limits, in the keys file; keys that sign records."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from headwater.access.key_format import check_key_name, generate_api_key, hash_of
from headwater.access.key_ring import has_api_keys
from headwater.access.keys_file import ApiKey, changing_keys, read_keys
from headwater.cli.options import AsJson, StoreOption, bare_store, command_group, option_names
from headwater.cli.output import EMPTY, note, print_json, print_table
from headwater.cli.runner import run
from headwater.core.durations import to_timedelta
from headwater.errors import FieldError, InvalidInputError
from headwater.model.callers import ALL_SCOPES, AccessScope
from headwater.records.signing import Ed25519Key, generate_key, parse_keyring, public_text
from headwater.store.feature_store import FeatureStore

app = command_group("Create, list and revoke API keys; generate keys that sign records.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]
NewName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the key, shown in logs and records.")
]
Scopes = Annotated[
    list[str],
    typer.Option(
        help="What the key allows: ingest, read, assemble, records, metrics or admin. Repeat it "
        "for several."
    ),
]
Entities = Annotated[
    list[str] | None, typer.Option(help="Only this entity. Repeat it for several.")
]
Contexts = Annotated[
    list[str] | None, typer.Option(help="Only this context. Repeat it for several.")
]
Indexes = Annotated[list[str] | None, typer.Option(help="Only this index. Repeat it for several.")]
Tenant = Annotated[
    str | None, typer.Option(metavar="PREFIX", help="Only entity ids with this prefix.")
]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Valid for this long, such as 90d; by default the key does not expire.",
    ),
]
RateLimit = Annotated[
    float | None, typer.Option(min=0, help="Requests per second, in place of `http.rate_limit`.")
]
signing = command_group("Generate keys that sign records, and print their public halves.")
app.add_typer(signing, name="signing")


@app.command()
def create(
    name: NewName,
    *,
    scope: Scopes,
    entity: Entities = None,
    context: Contexts = None,
    index: Indexes = None,
    tenant: Tenant = None,
    expires: Expires = None,
    rate_limit: RateLimit = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it, once. The keys file stores only its hash."""
    check_key_name(name)
    now = datetime.now(UTC).replace(microsecond=0)
    with option_names():
        expiry = None if expires is None else now + to_timedelta(expires)
    key = generate_api_key(name)
    row = ApiKey(
        hash=hash_of(key),
        scopes=frozenset(map(_scope, scope)),
        entities=_names(entity),
        contexts=_names(context),
        indexes=_names(index),
        tenant=tenant,
        created=now,
        expires=expiry,
        rate_limit=rate_limit,
    )
    row.check()
    store = bare_store(file)
    path = _path(store)
    is_first = not store.settings.oidc.issuer and not has_api_keys(store.settings)

    def add(keys: dict[str, ApiKey]) -> None:
        if name in keys:
            raise InvalidInputError(
                f"the key {name!r} exists in {path}; choose another name, or revoke it first with "
                f"`headwater keys revoke {name}`"
            )
        keys[name] = row

    given = {field: value for field, value in _facts(row).items() if value is not None}
    _change(store, add, "keys.create", name, **given)
    if as_json:
        print_json({"name": name, "key": key, **_facts(row)})
        return
    typer.echo(key)
    note(f"This key is secret and is not shown again. {path} stores only its hash.")
    if is_first:
        note("It is the first key: servers with this keys file now refuse requests without a key.")


@app.command("list")
def list_(*, file: StoreOption = None, as_json: AsJson = False) -> None:
    """List the API keys of the keys file: names, scopes, limits and expiry."""
    path = _path(bare_store(file))
    keys = read_keys(path)
    if as_json:
        print_json([{"name": name, **_facts(key)} for name, key in keys.items()])
        return
    if not keys:
        note(f"{path} has no keys; create one with `headwater keys create NAME --scope read`.")
        return
    now = datetime.now(UTC)
    print_table(
        ("name", "scopes", "limits", "expires"),
        [
            (name, ", ".join(sorted(key.scopes)), _limits(key), _expiry(key, now))
            for name, key in keys.items()
        ],
    )


@app.command()
def revoke(name: Name, *, file: StoreOption = None) -> None:
    """Revoke an API key: running servers refuse it within a second or two."""
    store = bare_store(file)

    def remove(keys: dict[str, ApiKey]) -> None:
        if name not in keys:
            raise FieldError.unknown(f"{_path(store)} has no key", name, keys)
        del keys[name]

    _change(store, remove, "keys.revoke", name)
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
        async with store.audited(action, name, **parameters):
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


def _names(names: list[str] | None) -> frozenset[str] | None:
    return frozenset(names) if names else None


def _facts(key: ApiKey) -> dict[str, object]:
    return {
        "scopes": sorted(key.scopes),
        "entities": key.entities and sorted(key.entities),
        "contexts": key.contexts and sorted(key.contexts),
        "indexes": key.indexes and sorted(key.indexes),
        "tenant": key.tenant,
        "created": key.created,
        "expires": key.expires,
        "rate_limit": key.rate_limit,
    }


def _limits(key: ApiKey) -> str:
    names = {"entities": key.entities, "contexts": key.contexts, "indexes": key.indexes}
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


@signing.command()
def generate(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="Name of the key; every record shows it.")
    ],
    *,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="Generate a secret for HMAC-SHA256 instead of an Ed25519 key pair."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a new key for the setting `signing_key`. Headwater does not store it."""
    key = generate_key(key_id, "HMAC-SHA256" if shared else "Ed25519")
    if as_json:
        print_json({"key_id": key_id, "signing_key": key})
        return
    typer.echo(key)
    note(
        "This key is secret. Put it first in HEADWATER_SIGNING_KEY, and keep the older keys after "
        "it, separated by commas."
    )


@signing.command()
def public(*, file: StoreOption = None, as_json: AsJson = False) -> None:
    """Print the public halves of the configured Ed25519 keys, one on each line, for auditors."""
    keys = parse_keyring(bare_store(file).settings.signing_key).keys
    pairs = [key for key in keys if isinstance(key, Ed25519Key)]
    if not pairs:
        raise InvalidInputError(
            "no Ed25519 key is configured, and a shared secret has no public half; generate one "
            "with `headwater keys signing generate KEY_ID` and put it into HEADWATER_SIGNING_KEY"
        )
    if as_json:
        print_json([{"key_id": key.key_id, "public_key": public_text(key)} for key in pairs])
        return
    for key in pairs:
        typer.echo(public_text(key))
    for secret in (key for key in keys if not isinstance(key, Ed25519Key)):
        note(f"Key {secret.key_id!r} is a shared secret, which has no public half.")
