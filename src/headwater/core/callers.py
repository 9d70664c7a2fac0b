"""The caller of a request, known to everything that runs for it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Literal, get_args

import msgspec

AccessScope = Literal["ingest", "read", "assemble", "records", "metrics", "admin"]
"""What a key allows: publish events and documents; read features, documents and declarations;
assemble contexts; read recorded contexts; read metrics; everything."""

ALL_SCOPES: frozenset[AccessScope] = frozenset(get_args(AccessScope))


class Caller(msgspec.Struct, frozen=True):
    """A named key or token, and what it allows."""

    name: str
    scopes: frozenset[AccessScope] = ALL_SCOPES

    def may(self, scope: AccessScope) -> bool:
        """Return whether the caller has a scope; ``admin`` includes all others."""
        return scope in self.scopes or "admin" in self.scopes


_caller: ContextVar[Caller | None] = ContextVar("headwater_caller", default=None)

set_caller = _caller.set


def current_caller() -> Caller | None:
    """Return the caller of the running request, or None outside of requests."""
    return _caller.get()
