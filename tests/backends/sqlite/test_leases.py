"""Leases of embedded workers that were stuck for longer than their time to live."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from conformance.suite import Opened, click, outcome
from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.errors import LeaseLostError
from headwater.settings.schema import Settings


@pytest.fixture
async def store(home: Path) -> AsyncIterator[Opened]:
    worker = {"consumer_group": "workers", "lease_ttl": 60}
    settings = Settings().replace(home=home, partitions=2, worker=worker)
    opened = Opened(**msgspec.structs.asdict(await connect(settings, SystemClock())))
    yield opened
    await opened.lifecycle.close()


def freeze(home: Path, worker: str) -> None:
    """Make the last heartbeat of a worker older than its time to live."""
    os.utime(home / "workers" / f"{worker}.lock", (0, 0))


async def test_a_worker_whose_group_was_dropped_while_it_was_stuck_is_listed_again(
    home: Path, store: Opened
) -> None:
    await store.leases.register("w1", ["a"])
    assert await store.leases.claim("w1", [0])
    freeze(home, "w1")
    await store.groups.drop("workers")
    assert await store.leases.heartbeat("w1", []) == ["w1"]
    assert await store.leases.claim("w1", [0])


async def test_a_worker_that_was_stuck_commits_nothing_once_its_set_is_replaced(
    home: Path, store: Opened
) -> None:
    await store.publish([click()])
    await store.leases.register("old", ["a"])
    batch = await store.only_batch(await store.leases.claim("old", range(3)))
    freeze(home, "old")
    await store.leases.register("new", ["a", "b"])
    with pytest.raises(LeaseLostError):
        await store.bus.commit(outcome(batch))
    (lease,) = await store.leases.claim("new", [batch.lease.partition])
    assert lease.suspect
