"""Conformance tests of the ``Leases`` port."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

import pytest

from conformance.suite import (
    BRIEF_LEASE,
    Connect,
    Opened,
    Suite,
    click,
    outcome,
    until,
)
from headwater.errors import BackendUnavailableError, LeaseLostError
from headwater.ports import Lease


class LeasesConformance(Suite):
    """The live workers, and the partitions that each of them holds."""

    async def test_a_partition_has_at_most_one_valid_lease(self, connect: Connect) -> None:
        openings = [await Opened.by(connect) for _ in range(3)]
        claims = await asyncio.gather(
            *(opening.hold(f"w{number}") for number, opening in enumerate(openings))
        )
        held = [lease.partition for claim in claims for lease in claim]
        assert sorted(held) == list(range(openings[0].bus.partitions + 1))

    async def test_a_lease_is_void_as_soon_as_another_epoch_of_it_exists(
        self, store: Opened
    ) -> None:
        leases, batch = await store.take_clicks(1)
        await store.leases.release(leases)
        renewed = await store.leases.claim("w1", [batch.lease.partition])
        assert renewed[0].epoch > batch.lease.epoch
        with pytest.raises(LeaseLostError):
            await store.bus.commit(outcome(batch))
        await store.bus.commit(outcome(await store.only_batch(renewed)))

    async def test_a_dead_workers_partitions_can_be_claimed_when_the_time_to_live_is_over(
        self, connect: Connect
    ) -> None:
        store, other = [await Opened.by(connect, lease_ttl=BRIEF_LEASE) for _ in range(2)]
        await store.claim_when_free("w1", [0, 1])
        leases = await other.claim_when_free("w2", [0, 1])
        assert {lease.owner for lease in leases} == {"w2"}
        assert all(lease.suspect for lease in leases)

    async def test_a_worker_that_sends_heartbeats_keeps_its_partitions(
        self, connect: Connect
    ) -> None:
        store, other = [await Opened.by(connect, lease_ttl=BRIEF_LEASE) for _ in range(2)]
        leases = await store.claim_when_free("w1", [0])
        for worker in ("silent", "w2"):
            await other.claim_when_free(worker, [])

        async def is_kept_for_longer_than_a_lease() -> bool:
            nonlocal leases
            with suppress(BackendUnavailableError):
                began = time.monotonic()
                living = await store.leases.heartbeat("w1", leases)
                taken = await other.leases.claim("w2", [0])
                if not taken:
                    return "silent" not in living
                # Only a pause of the machine may be longer than the lease. Then all begins again.
                assert time.monotonic() - began >= BRIEF_LEASE
                await other.leases.release(taken)
                leases = await store.claim_when_free("w1", [0])
                await other.claim_when_free("silent", [])
            return False

        await until(is_kept_for_longer_than_a_lease)

    async def test_heartbeat_lists_all_live_workers(self, store: Opened, other: Opened) -> None:
        await store.hold("w1", [])
        await other.hold("w2", [])
        assert await store.leases.heartbeat("w1", []) == ["w1", "w2"]
        assert await other.leases.heartbeat("w2", []) == ["w1", "w2"]

    async def test_claim_takes_the_partitions_that_no_other_live_worker_holds(
        self, store: Opened, other: Opened
    ) -> None:
        mine = await store.hold("w1", [0])
        theirs = await other.hold("w2", [0, 1])
        assert [lease.partition for lease in mine] == [0]
        assert [lease.partition for lease in theirs] == [1]
        assert await store.leases.claim("w1", [1]) == []

    async def test_a_worker_that_forgot_its_lease_can_claim_it_again(self, store: Opened) -> None:
        (before,) = await store.hold("w1", [0])
        (after,) = await store.leases.claim("w1", [0])
        assert after.epoch > before.epoch
        assert not after.suspect

    async def test_a_released_partition_can_be_claimed_at_once_and_is_not_suspect(
        self, store: Opened, other: Opened
    ) -> None:
        await store.leases.release(await store.hold("w1", [0]))
        (lease,) = await other.hold("w2", [0])
        assert not lease.suspect

    async def test_releasing_a_void_lease_leaves_the_new_owner_alone(
        self, store: Opened, other: Opened
    ) -> None:
        void = await store.hold("w1", [0])
        await store.leases.release(void)
        await other.hold("w2", [0])
        await store.leases.release(void)
        assert await store.leases.claim("w1", [0]) == []

    async def test_a_retired_worker_is_no_longer_listed_and_keeps_its_leases(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold("w1", [0])
        await other.hold("w2", [])
        await store.leases.retire("w1")
        assert await other.leases.heartbeat("w2", []) == ["w2"]
        assert await store.leases.heartbeat("w1", leases) == ["w2"]
        assert await other.leases.claim("w2", [0]) == []
        await store.leases.release(leases)
        (lease,) = await other.leases.claim("w2", [0])
        assert not lease.suspect

    async def test_a_deregistered_worker_is_no_longer_listed_and_holds_nothing(
        self, store: Opened, other: Opened
    ) -> None:
        await store.hold("w1", [0])
        await store.leases.deregister("w1")
        (lease,) = await other.hold("w2", [0])
        assert lease.owner == "w2"
        assert await other.leases.heartbeat("w2", [lease]) == ["w2"]

    async def test_only_the_workers_of_the_current_set_hold_partitions(
        self, store: Opened, other: Opened
    ) -> None:
        await store.leases.register("old", ["a"])
        (lease,) = await store.leases.claim("old", [0])
        await other.leases.register("new", ["a", "b"])

        async def is_replaced() -> bool:
            await other.leases.heartbeat("new", [])
            return await store.leases.heartbeat("old", [lease]) == ["new"]

        await until(is_replaced)
        assert await store.leases.current_set("old") == {"a", "b"}
        assert await store.leases.claim("old", [0, 1]) == []
        (lease,) = await other.leases.claim("new", [0])
        assert not lease.suspect

    async def test_no_lease_of_a_replaced_set_is_valid_once_its_successor_is_registered(
        self, store: Opened, other: Opened
    ) -> None:
        await store.publish([click()])
        await store.leases.register("old", ["a"])
        leases = await store.leases.claim("old", range(store.bus.partitions + 1))
        batch = await store.only_batch(leases)
        await other.leases.register("new", ["a", "b"])
        with pytest.raises(LeaseLostError):
            await store.bus.commit(outcome(batch))
        # It has sent no heartbeat since, so it does not know that it has to wait.
        assert await store.leases.claim("old", [batch.lease.partition]) == []
        renewed = await other.leases.claim("new", [batch.lease.partition])
        await other.bus.commit(outcome(await other.only_batch(renewed)))

    async def test_the_current_set_is_the_one_first_registered_last_that_no_other_contains(
        self, store: Opened
    ) -> None:
        workers: list[str] = []

        async def is_current(features: str) -> bool:
            # Twice, because a worker that was too slow for the time to live is listed again.
            for worker in (*workers, *workers):
                await store.leases.heartbeat(worker, [])
            return await store.leases.current_set(workers[0]) == {*features}

        for declared, current in [
            ("a", "a"),
            ("b", "b"),
            ("a", "b"),  # a set that was registered before
            ("abc", "abc"),
            ("c", "abc"),
            ("abd", "abd"),
            ("abc", "abd"),
        ]:
            workers.append(f"w{len(workers)}")
            await store.leases.register(workers[-1], declared)
            await until(partial(is_current, current))
        await store.leases.deregister(workers.pop(5))
        await until(partial(is_current, "abc"))

    async def test_the_current_set_is_the_one_whose_code_was_first_registered_last(
        self, store: Opened
    ) -> None:
        workers = ["old", "new"]

        async def is_current(features: str) -> bool:
            for worker in (*workers, *workers):
                await store.leases.heartbeat(worker, [])
            return await store.leases.current_set("old") == {*features}

        await store.leases.register("old", "a", "code 1")
        await store.leases.register("new", "b", "code 2")
        # A worker that declares other versions of its features is not a later one.
        await store.leases.register("old", "ac", "code 1")
        await until(partial(is_current, "b"))
        assert await store.leases.claim("old", [0]) == []
        await store.leases.register("new", "d", "code 2")
        await until(partial(is_current, "d"))
        # The same features with other code are another set.
        await store.leases.register("old", "d", "code 1")
        await until(partial(is_current, "d"))
        assert await store.leases.claim("old", [0]) == []
        assert await store.leases.heartbeat("new", []) == ["new"]
        await store.leases.deregister(workers.pop())
        await until(partial(is_current, "d"))
        (lease,) = await store.leases.claim("old", [0])
        assert lease.owner == "old"

    async def test_others_wait_until_no_listed_worker_declares_the_current_set(
        self, store: Opened, other: Opened
    ) -> None:
        await store.leases.register("old", ["a"])
        await other.leases.register("new", ["a", "b"])
        leases = await other.leases.claim("new", [0, 1])
        await other.leases.retire("new")
        assert await store.leases.heartbeat("old", []) == ["old"]
        await other.leases.release(leases)
        claimed = await store.leases.claim("old", [0, 1])
        assert [lease.partition for lease in claimed] == [0, 1]

    async def test_registering_again_replaces_the_features_that_the_worker_declares(
        self, store: Opened
    ) -> None:
        await store.leases.register("w1", ["a", "b"])
        for declared in (["a"], ["a", "c"], ["a"]):
            await store.leases.release(await store.leases.claim("w1", [0]))
            await store.leases.register("w1", declared)
            assert await store.leases.heartbeat("w1", []) == ["w1"]
            assert await store.leases.current_set("w1") == {*declared}
        (lease,) = await store.leases.claim("w1", [0])
        assert not lease.suspect

    async def test_a_worker_that_was_silent_takes_its_partitions_back(
        self, connect: Connect
    ) -> None:
        store, other = [await Opened.by(connect, lease_ttl=BRIEF_LEASE) for _ in range(2)]
        await other.claim_when_free("new", [0], ["a", "b"])
        (lease,) = await store.claim_when_free("old", [0], ["a"])
        claimed: list[Lease] = []

        async def is_back() -> bool:
            with suppress(BackendUnavailableError):
                await other.leases.heartbeat("new", [])
                if await store.leases.heartbeat("old", [lease]) == ["new"]:
                    claimed.extend(await other.leases.claim("new", [0]))
            return bool(claimed)

        await until(is_back)
        assert claimed[0].epoch > lease.epoch
