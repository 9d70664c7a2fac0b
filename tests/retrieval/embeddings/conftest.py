"""Fixtures of the tests of embedders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core.clock import Clock
from headwater.ports import Cache
from headwater.retrieval.embeddings import Embedders
from tests.retrieval.embeddings.provider_server import ProviderServer
from tests.retrieval.embeddings.support import Open, embedders


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect to the local server directly, also on a machine with a proxy."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    """Yield a server that speaks the wire formats of the providers."""
    async with ProviderServer().listening() as listening:
        yield listening


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Yield a function that returns embedders, which are closed at the end."""
    every: list[Embedders] = []

    def open_embedders(
        clock: Clock | None = None, cache: Cache | None = None, **settings: Any
    ) -> Embedders:
        every.append(embedders(clock, cache, **settings))
        return every[-1]

    yield open_embedders
    for each in every:
        await each.close()
