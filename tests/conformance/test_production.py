"""Redis and Postgres keep every promise of the ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from headwater.clock import SystemClock
from headwater.connect import connect as connect_backends
from headwater.ports import Backends
from headwater.settings import Settings
from headwater.testing.conformance import (
    BusConformance,
    Connect,
    DeadLettersConformance,
    OfflineStoreConformance,
    OnlineStoreConformance,
    RosterConformance,
)
from headwater.testing.conformance.suite import Suite


class Production(Suite):
    """One store on two servers, opened as often as a test likes."""

    @pytest.fixture
    async def connect(self, production: Settings) -> AsyncIterator[Connect]:
        settings = production.with_(partitions=4, worker={"lease_ttl": 0.5})
        opened: list[Backends] = []

        async def opening() -> Backends:
            opened.append(await connect_backends(settings, SystemClock()))
            return opened[-1]

        yield opening
        for backends in opened:
            await backends.lifecycle.close()


class TestRedisBus(Production, BusConformance):
    """The log of events in Redis Streams."""


class TestRedisRoster(Production, RosterConformance):
    """Beats and leases."""


class TestRedisDeadLetters(Production, DeadLettersConformance):
    """Dead letters in a stream."""


class TestRedisOnlineStore(Production, OnlineStoreConformance):
    """Present values, packed."""


class TestPostgresOfflineStore(Production, OfflineStoreConformance):
    """History and events in tables, fed by the outbox."""

    @pytest.fixture
    def orders(self) -> Mapping[str, str]:
        return {"orders": "orders"}
