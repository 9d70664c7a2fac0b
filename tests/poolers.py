"""Stores of tests reach Postgres through a PgBouncer, where the option asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers import pgbouncer_of

_HOSTS: dict[str, str] = {}


@contextmanager
def behind_pgbouncer(url: str) -> Iterator[None]:
    """Let the stores on a server use a PgBouncer for the block; tests look at the server itself."""
    with pgbouncer_of(url) as machine:
        _HOSTS[url] = f"127.0.0.1:{machine.port}"
        yield
        del _HOSTS[url]


def through_pooler(url: str) -> dict[str, Any]:
    """Return the settings of a store on a server, besides its URL."""
    return {"hosts": _HOSTS[url], "pooler": "transaction"} if url in _HOSTS else {}
