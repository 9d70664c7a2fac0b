"""The file of API keys: names, hashes, scopes and limits, never the keys themselves."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.access.key_format import check_key_name
from headwater.errors import ConfigError, InvalidInputError
from headwater.model.callers import AccessScope, Caller, CallerLimits
from headwater.settings.loading import read_toml

Moment = Annotated[datetime, Meta(tz=True)]
Names = Annotated[frozenset[str], Meta(min_length=1)]

_HEADER = """\
# API keys of Headwater: hashes, scopes and limits. `headwater keys create` and `keys revoke` write
# this file, and running servers read it again when it changes.
"""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the keys file; the name of its table is the name of the key."""

    hash: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    scopes: Annotated[frozenset[AccessScope], Meta(min_length=1)]
    entities: Names | None = None
    contexts: Names | None = None
    indexes: Names | None = None
    tenant: Annotated[str, Meta(min_length=1)] | None = None
    ids: Names | None = None
    created: Moment | None = None
    expires: Moment | None = None
    rate_limit: Annotated[float, Meta(ge=0)] | None = None

    @property
    def digest(self) -> bytes:
        """The digest of the key."""
        return bytes.fromhex(self.hash.removeprefix("sha256:"))

    @property
    def limits(self) -> CallerLimits | None:
        """The limits of the key, or None if it has none."""
        limits = CallerLimits(
            entities=self.entities,
            contexts=self.contexts,
            indexes=self.indexes,
            tenant=self.tenant or "",
            ids=self.ids,
        )
        return None if limits == CallerLimits() else limits

    def caller(self, name: str) -> Caller:
        """Return the caller that sends this key."""
        return Caller(name, self.scopes, self.limits)

    def check(self) -> None:
        """Raise InvalidInputError if scopes and limits contradict each other, or limit nothing."""
        names = (self.entities, self.contexts, self.indexes, self.ids)
        if self.tenant == "" or any("" in name for name in names if name is not None):
            raise InvalidInputError(
                "a limit is empty; give the prefix of a tenant, ids, and the names of entities, "
                "contexts or indexes, or leave the limit out"
            )
        if "admin" in self.scopes and self.limits is not None:
            raise InvalidInputError(
                "a key with the scope 'admin' may do everything and cannot have limits; leave out "
                "the scope or the limits"
            )


def read_keys(path: Path) -> dict[str, ApiKey]:
    """Return the keys of a file by name, or none if it does not exist; raise ConfigError."""
    tree = read_toml(path, f"keys file {path}")
    keys = {name: _checked(path, name, table) for name, table in tree.items()}
    digests: dict[bytes, str] = {}
    for name, key in keys.items():
        if (other := digests.setdefault(key.digest, name)) != name:
            raise ConfigError(
                f"keys file {path}: {other!r} and {name!r} have the same hash, so the server could "
                "not tell them apart; remove one"
            )
    return keys


def _checked(path: Path, name: str, table: Any) -> ApiKey:
    try:
        check_key_name(name)
        key = msgspec.convert(table, ApiKey)
        key.check()
    except (msgspec.ValidationError, InvalidInputError) as error:
        raise ConfigError(f"keys file {path}: key {name!r}: {error}") from error
    return key


@contextmanager
def changing_keys(path: Path) -> Iterator[dict[str, ApiKey]]:
    """Yield the keys of a file, and store the changed ones unless the code inside raises.

    A lock on the folder orders concurrent changes; readers see the old file or the new one.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"keys file {path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        keys = read_keys(path)
        yield keys
        _replace(path, keys)
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace(path: Path, keys: Mapping[str, ApiKey]) -> None:
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            # The temporary file has the mode 0600, which the keys file keeps.
            file.write(_HEADER + "".join(_table(name, key) for name, key in keys.items()))
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except OSError as error:
        raise ConfigError(f"keys file {path} cannot be written: {error.strerror}") from error


def _table(name: str, key: ApiKey) -> str:
    """Return a key as TOML, whose strings and arrays of strings are those of JSON."""
    lines = [f"\n[{name}]"]
    for field, value in msgspec.structs.asdict(key).items():
        if isinstance(value, datetime):
            lines.append(f"{field} = {value.isoformat()}")
        elif value is not None:
            shown = sorted(value) if isinstance(value, frozenset) else value
            lines.append(f"{field} = {json.dumps(shown)}")
    return "\n".join(lines) + "\n"
