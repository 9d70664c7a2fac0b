"""Conformance tests of the ``Leases`` port."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import LeaseLostError
from headwater.ports import Backends
from headwater.testing.conformance.suite import (
    Connect,
    Suite,
    claim_when_free,
    hold,
    only_batch,
    outcome,
    take_clicks,
    until,
)


class LeasesConformance(Suite):
    """The live workers, and the partitions that each of them holds."""

    async def test_a_partition_has_at_most_one_valid_lease(self, connect: Connect) -> None:
        openings = [await connect() for _ in range(3)]
        claims = await asyncio.gather(
            *(hold(opening, f"w{number}") for number, opening in enumerate(openings))
        )
        held = [lease.partition for claim in claims for lease in claim]
        assert sorted(held) == list(range(openings[0].bus.partitions + 1))

    async def test_a_lease_is_void_as_soon_as_another_epoch_of_it_exists(
        self, backends: Backends
    ) -> None:
        leases, batch = await take_clicks(backends, 1)
        await backends.leases.release(leases)
        renewed = await backends.leases.claim("w1", [batch.lease.partition])
        assert renewed[0].epoch > batch.lease.epoch
        with pytest.raises(LeaseLostError):
            await backends.bus.commit(outcome(batch))
        await backends.bus.commit(outcome(await only_batch(backends, renewed)))

    async def test_a_dead_workers_partitions_can_be_claimed_when_the_time_to_live_is_over(
        self, one: Backends, other: Backends
    ) -> None:
        await hold(one, "w1", [0, 1])
        await other.leases.register("w2")
        leases = await claim_when_free(other, "w2", [0, 1])
        assert {lease.owner for lease in leases} == {"w2"}
        assert all(lease.suspect for lease in leases)

    async def test_a_worker_that_sends_heartbeats_keeps_its_partitions(
        self, one: Backends, other: Backends
    ) -> None:
        leases = await hold(one, "w1", [0])
        await other.leases.register("silent")
        await other.leases.heartbeat("silent", [])

        async def silent_worker_is_dead() -> bool:
            return "silent" not in await one.leases.heartbeat("w1", leases)

        await until(silent_worker_is_dead)
        assert await hold(other, "w2", [0]) == []

    async def test_heartbeat_lists_all_live_workers(self, one: Backends, other: Backends) -> None:
        await hold(one, "w1", [])
        await hold(other, "w2", [])
        assert await one.leases.heartbeat("w1", []) == ["w1", "w2"]
        assert await other.leases.heartbeat("w2", []) == ["w1", "w2"]

    async def test_claim_takes_the_partitions_that_no_other_live_worker_holds(
        self, one: Backends, other: Backends
    ) -> None:
        mine = await hold(one, "w1", [0])
        theirs = await hold(other, "w2", [0, 1])
        assert [lease.partition for lease in mine] == [0]
        assert [lease.partition for lease in theirs] == [1]
        assert await one.leases.claim("w1", [1]) == []

    async def test_a_worker_that_forgot_its_lease_can_claim_it_again(
        self, backends: Backends
    ) -> None:
        (before,) = await hold(backends, "w1", [0])
        (after,) = await backends.leases.claim("w1", [0])
        assert after.epoch > before.epoch
        assert not after.suspect

    async def test_a_released_partition_can_be_claimed_at_once_and_is_not_suspect(
        self, one: Backends, other: Backends
    ) -> None:
        await one.leases.release(await hold(one, "w1", [0]))
        (lease,) = await hold(other, "w2", [0])
        assert not lease.suspect

    async def test_releasing_a_void_lease_leaves_the_new_owner_alone(
        self, one: Backends, other: Backends
    ) -> None:
        void = await hold(one, "w1", [0])
        await one.leases.release(void)
        await hold(other, "w2", [0])
        await one.leases.release(void)
        assert await one.leases.claim("w1", [0]) == []

    async def test_a_retired_worker_is_no_longer_listed_and_keeps_its_leases(
        self, one: Backends, other: Backends
    ) -> None:
        leases = await hold(one, "w1", [0])
        await hold(other, "w2", [])
        await one.leases.retire("w1")
        assert await other.leases.heartbeat("w2", []) == ["w2"]
        assert await one.leases.heartbeat("w1", leases) == ["w2"]
        assert await other.leases.claim("w2", [0]) == []
        await one.leases.release(leases)
        (lease,) = await other.leases.claim("w2", [0])
        assert not lease.suspect

    async def test_a_deregistered_worker_is_no_longer_listed_and_holds_nothing(
        self, one: Backends, other: Backends
    ) -> None:
        await hold(one, "w1", [0])
        await one.leases.deregister("w1")
        (lease,) = await hold(other, "w2", [0])
        assert lease.owner == "w2"
        assert await other.leases.heartbeat("w2", [lease]) == ["w2"]
