"""The caller of a request, known to everything that runs for it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from headwater.errors.base import RequestError

AccessScope = Literal["ingest", "read", "assemble", "outcomes", "records", "metrics", "admin"]
"""What a key allows: publish events and documents; read features, documents and declarations;
assemble contexts; add outcomes to recorded contexts; read recorded contexts; read metrics;
everything."""

ALL_SCOPES: frozenset[AccessScope] = frozenset(get_args(AccessScope))


class CallerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the store that a caller may use; None and an empty tenant do not limit.

    What belongs to an entity that the caller may use has another id, and may be used as well.
    """

    entities: frozenset[str] | None = None
    """Names of entities."""
    contexts: frozenset[str] | None = None
    """Names of contexts."""
    indexes: frozenset[str] | None = None
    """Names of indexes. A caller with a tenant or ids may use only indexes that are named here."""
    tenant: str = ""
    """The prefix of all entity ids that the caller may use."""
    ids: frozenset[str] | None = None
    """The entity ids that the caller may use."""

    @property
    def are_of_ids(self) -> bool:
        """Whether they allow only some ids."""
        return bool(self.tenant) or self.ids is not None

    def allow(self, entity: str, entity_id: str) -> bool:
        """Return whether they allow an entity by its class and its id."""
        is_in_class = self.entities is None or entity in self.entities
        return is_in_class and self.allow_id(entity_id)

    def allow_id(self, entity_id: str) -> bool:
        """Return whether they allow an id."""
        return entity_id.startswith(self.tenant) and (self.ids is None or entity_id in self.ids)


class ScopeError(RequestError):
    """A request that the caller's key does not allow."""

    def __init__(self, key: str, scope: AccessScope) -> None:
        self.key = key
        self.scope = scope
        super().__init__(
            f"the key {key!r} does not have the scope {scope!r}; use a key that has it"
        )


class Caller(msgspec.Struct, frozen=True):
    """A named key or token, and its rights."""

    name: str
    scopes: frozenset[AccessScope] = ALL_SCOPES
    limits: CallerLimits | None = None

    def may(self, scope: AccessScope) -> bool:
        """Return whether the caller has a scope; ``admin`` includes all others."""
        return scope in self.scopes or "admin" in self.scopes

    def check(self, scope: AccessScope) -> None:
        """Raise ScopeError if the caller does not have a scope."""
        if not self.may(scope):
            raise ScopeError(self.name, scope)


_caller: ContextVar[Caller | None] = ContextVar("headwater_caller", default=None)

set_caller = _caller.set
current_caller = _caller.get
"""Return the caller of the running request, or None outside of requests."""


def caller_name() -> str | None:
    """Return the name of the caller, or None outside of requests."""
    caller = _caller.get()
    return None if caller is None else caller.name


def current_actor() -> str:
    """Return the name of the caller, or the user and the host that this process runs on."""
    name = caller_name()
    if name is not None:
        return name
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container the user may have no name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


Operation = Annotated[
    str, Meta(description="A method and a path of this document.", examples=["GET /v1/contexts"])
]


class CallerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of the request, what its key or token allows, and the server."""

    name: str
    """The name of the key or token, or ``this machine`` if the server requires none."""
    scopes: Sequence[AccessScope]
    """The scopes that the caller has; ``admin`` includes all others, which are listed too."""
    limits: CallerLimits | None
    """The part of the store that the caller may use, or null if it may use all."""
    operations: Sequence[Operation]
    """The operations that scopes and limits allow."""
    key_required: bool
    """Whether the server requires a key or a token."""
    environment: Literal["development", "production"]
    """The setting ``env`` of the server."""
    version: str
    """The version of Headwater that the server runs."""
