"""Conformance tests of the ``Bus`` port."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from conformance.commit_waits import CommitWaitsConformance
from conformance.deduplication import DAY, DeduplicationConformance
from conformance.suite import (
    BRIEF_LEASE,
    MANY,
    START,
    Connect,
    Opened,
    after,
    change,
    click,
    clicks,
    dead_letter,
    numbers,
    outcome,
)
from headwater.core.schedules import Interval
from headwater.errors import LeaseLostError, VersionConflictError
from headwater.model.admin import ConsumerLag
from headwater.model.values import ServiceEvent
from headwater.ports import EntityState, Lease, Tick

MINUTE = timedelta(minutes=1)
CLOCKS_APART = timedelta(seconds=5)
"""How much the clocks of servers may differ."""


class BusConformance(DeduplicationConformance, CommitWaitsConformance):
    """The durable, partitioned log of events, read by workers that hold leases."""

    async def test_an_event_whose_publish_returned_survives_the_death_of_every_process(
        self, store: Opened, connect: Connect
    ) -> None:
        event = ServiceEvent("click", "u1", {"number": 7, "text": "é\n", "deep": [{}]}, after(1.5))
        await store.publish([event])
        later = await Opened.by(connect)
        batch = await later.only_batch(await later.hold())
        assert [delivery.event for delivery in batch.deliveries] == [event]

    async def test_events_of_one_entity_are_in_one_partition_in_the_order_of_their_publishes(
        self, store: Opened, other: Opened
    ) -> None:
        for number in range(10):
            await (store, other)[number % 2].publish([click("u1", number), click("u2", number)])
        await store.publish([click("u1", number) for number in range(10, 13)])
        batches = await store.read(await store.hold())
        for entity_id, count in (("u1", 13), ("u2", 10)):
            (numbers_read,) = [
                [
                    d.event.payload["number"]
                    for d in batch.deliveries
                    if d.event.entity_id == entity_id
                ]
                for batch in batches
                if any(d.event.entity_id == entity_id for d in batch.deliveries)
            ]
            assert numbers_read == list(range(count))

    async def test_publish_appends_events_all_or_none(self, store: Opened) -> None:
        impossible = msgspec.structs.replace(click(number=1), payload={"number": object()})
        with pytest.raises((TypeError, ValueError)):
            await store.publish([click(number=0), impossible])
        assert await store.bus.backlog() == 0

    async def test_publishing_no_events_does_nothing(self, store: Opened) -> None:
        assert await store.publish([]) == []
        assert await store.bus.publish([], dedup_window=DAY) == []

    async def test_a_batch_that_was_not_committed_is_read_again_by_this_worker(
        self, store: Opened
    ) -> None:
        leases, before = await store.take_clicks(3)
        assert await store.only_batch(leases) == before

    async def test_a_batch_that_was_not_committed_is_read_again_by_the_next_owner(
        self, store: Opened, other: Opened
    ) -> None:
        leases, before = await store.take_clicks(3)
        await store.leases.release(leases)
        again = await other.only_batch(await other.hold("w2"))
        assert again.deliveries == before.deliveries

    async def test_a_committed_batch_is_never_read_again(
        self, store: Opened, other: Opened
    ) -> None:
        await store.publish(clicks(3))
        leases = await store.hold("w1")
        await store.bus.commit(outcome(await store.only_batch(leases)))
        assert await store.read(leases) == []
        await store.leases.release(leases)
        leases = await other.hold("w2")
        assert await other.read(leases) == []
        await store.publish([click(number=9)])
        assert numbers(await other.only_batch(leases)) == [9]

    async def test_read_returns_the_next_events_up_to_a_limit_over_all_partitions(
        self, store: Opened
    ) -> None:
        await store.publish([click(f"u{n}", n) for n in range(40)])
        leases = await store.hold()
        seen: list[int] = []
        while batches := await store.read(leases, limit=7):
            assert sum(len(batch.deliveries) for batch in batches) <= 7
            for batch in batches:
                seen += numbers(batch)
                await store.bus.commit(outcome(batch))
        assert sorted(seen) == list(range(40))

    async def test_read_returns_nothing_of_other_partitions(self, store: Opened) -> None:
        await store.publish([click("u1")])
        leases = await store.hold()
        home = (await store.only_batch(leases)).lease
        assert await store.read([lease for lease in leases if lease != home]) == []
        assert await store.read([]) == []

    async def test_a_batch_includes_the_states_of_the_entities_that_an_event_concerns(
        self, store: Opened
    ) -> None:
        known = change(5, entity="Page")
        await store.online.put([known])
        event = ServiceEvent("view", "u1", {"number": 0}, START)
        await store.publish([event, ServiceEvent("unheard", "u2", {"number": 1}, START)])
        batches = await store.read(await store.hold())
        states = {key: state for batch in batches for key, state in batch.states.items()}
        assert states.keys() == {("User", "u1"), ("Page", "u1")}
        assert (states["User", "u1"].version, states["User", "u1"].cells) == (0, {})
        assert states["Page", "u1"].version > 0
        assert states["Page", "u1"].cells == {"clicks": known.cell}

    async def test_an_attempt_at_a_suspect_event_is_counted_durably_before_it_runs(
        self, store: Opened, other: Opened
    ) -> None:
        leases, batch = await store.take_clicks(2)
        first, second = batch.deliveries
        assert await store.bus.attempt(batch.lease, first.position) == 1
        assert await store.bus.attempt(batch.lease, first.position) == 2
        await store.leases.release(leases)
        batch = await other.only_batch(await other.hold("w2"))
        assert await other.bus.attempt(batch.lease, first.position) == 3
        assert await other.bus.attempt(batch.lease, second.position) == 1

    async def test_an_attempt_is_not_counted_under_a_void_lease(self, store: Opened) -> None:
        await store.publish(clicks(1))
        void = await self._superseded(store)
        with pytest.raises(LeaseLostError):
            await store.bus.attempt(void, "1")

    async def test_commit_stores_values_history_dead_letters_follow_ups_and_position_atomically(
        self, store: Opened, other: Opened
    ) -> None:
        leases, batch = await store.take_clicks(2)
        late = change(4, as_of=after(-9), online=False)
        await store.bus.commit(
            outcome(
                batch,
                [change(1), late, change(2, as_of=after(1))],
                dead=[dead_letter(batch, "visits")],
                follow_ups=[click(number=8)],
            )
        )
        assert await other.value_online() == 2
        assert await other.value_at(after(-9)) == 4
        assert await other.value_at(START) == 1
        assert [letter.feature for letter in await other.letters()] == ["visits"]
        assert numbers(await store.only_batch(leases)) == [8]

    async def test_a_commit_under_a_void_lease_is_refused_and_nothing_is_stored(
        self, store: Opened
    ) -> None:
        leases, stale = await store.take_clicks(2)
        await store.leases.release(leases)
        leases = await store.hold("w2")
        with pytest.raises(LeaseLostError):
            await store.bus.commit(
                outcome(stale, [change()], dead=[dead_letter(stale)], follow_ups=[click()])
            )
        await self._assert_untouched(store, leases)

    async def test_a_commit_after_an_entity_changed_is_refused_and_nothing_is_stored(
        self, store: Opened
    ) -> None:
        await store.online.put([change(1, feature="other")])
        leases, stale = await store.take_clicks(2)
        await store.online.put([change(2, feature="other", as_of=after(1))])
        with pytest.raises(VersionConflictError):
            await store.bus.commit(
                outcome(stale, [change()], dead=[dead_letter(stale)], follow_ups=[click()])
            )
        await self._assert_untouched(store, leases)
        assert await store.value_online("other") == 2

    async def test_a_commit_after_an_unknown_entity_was_created_is_refused(
        self, store: Opened
    ) -> None:
        leases, stale = await store.take_clicks(2)
        await store.online.put([change(1, feature="other")])
        with pytest.raises(VersionConflictError):
            await store.bus.commit(outcome(stale, [change()]))
        await self._assert_untouched(store, leases)

    async def test_a_refused_commit_names_the_entities_that_changed(self, store: Opened) -> None:
        _, stale = await store.take_clicks(2)
        unchanged = {("Account", "u1"): EntityState(0, {})}
        batch = msgspec.structs.replace(stale, states={**unchanged, **stale.states})
        await store.online.put([change(1, feature="other")])
        with pytest.raises(VersionConflictError) as caught:
            await store.bus.commit(outcome(batch, [change(entity="Account"), change()]))
        assert caught.value.changed == {("User", "u1")}

    async def test_a_batch_is_committed_only_once(self, store: Opened) -> None:
        _, batch = await store.take_clicks(2)
        await store.bus.commit(outcome(batch, [change(1)]))
        with pytest.raises((LeaseLostError, VersionConflictError)):
            await store.bus.commit(outcome(batch, [change(2)]))
        assert await store.value_online() == 1

    async def test_a_worker_whose_lease_expired_cannot_commit(self, connect: Connect) -> None:
        store, other = [await Opened.by(connect, lease_ttl=BRIEF_LEASE) for _ in range(2)]
        every = range(store.bus.partitions + 1)
        await store.publish(clicks(2))
        stale = await store.only_batch(await store.claim_when_free("w1", every))
        taken = await other.claim_when_free("w2", every)
        with pytest.raises(LeaseLostError):
            await store.bus.commit(outcome(stale, [change(1)]))
        await self._assert_untouched(other, taken)

    async def test_a_tick_is_published_unless_it_or_a_later_one_was(
        self, store: Opened, other: Opened
    ) -> None:
        assert await store.bus.publish_ticks([_tick(60)]) == [None]
        assert await other.bus.publish_ticks([_tick(60)]) == [after(60)]
        assert await other.bus.publish_ticks([_tick(300)]) == [after(60)]
        assert await store.bus.publish_ticks([_tick(120)]) == [after(120)]
        batch = await store.only_batch(await store.hold())
        assert [d.event.event_id for d in batch.deliveries] == ["tick:60", "tick:300"]

    async def test_a_tick_published_concurrently_is_published_once(
        self, store: Opened, other: Opened
    ) -> None:
        answers = await asyncio.gather(
            *(bus.publish_ticks([_tick(60)]) for bus in [store.bus, other.bus] * 10)
        )
        assert sum(before is None for (before,) in answers) == 1
        assert await store.bus.backlog() == 1

    async def test_a_tick_for_everywhere_is_delivered_once_in_each_partition(
        self, store: Opened
    ) -> None:
        await store.bus.publish_ticks([_tick(60, everywhere=True)])
        batches = await store.read(await store.hold())
        assert {batch.lease.partition for batch in batches} == set(range(store.bus.partitions))
        assert all(len(batch.deliveries) == 1 for batch in batches)

    async def test_wait_returns_when_there_may_be_events(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold("w1")
        for number in range(3):
            assert await store.read(leases) == []
            async with asyncio.timeout(60):
                waiting = asyncio.create_task(store.bus.wait("w1", 600))
                await asyncio.sleep(0)
                await other.publish([click(number=number)])
                await waiting
                await store.bus.commit(outcome(await store.only_batch(leases)))

    async def test_wait_returns_after_the_timeout(self, store: Opened) -> None:
        await store.hold("w1")
        async with asyncio.timeout(60):
            await store.bus.wait("w1", 0.01)
            await store.bus.wait("w1", 0.01)

    async def test_memory_is_about_what_the_store_takes_unless_it_is_on_disk(
        self, store: Opened
    ) -> None:
        before = await store.bus.memory()
        await store.publish([click(f"u{n}", n) for n in range(500)])
        after = await store.bus.memory()
        assert (before is None) == (after is None)
        assert after is None or before is None or after > before + 500

    async def test_backlog_counts_the_uncommitted_events(self, store: Opened) -> None:
        assert await store.bus.backlog() == 0
        await store.publish([click(f"u{n}", n) for n in range(5)])
        assert await store.bus.backlog() == 5
        leases = await store.hold()
        batches = await store.read(leases)
        assert await store.bus.backlog() == 5
        await store.bus.commit(outcome(batches[0]))
        assert await store.bus.backlog() == 5 - len(batches[0].deliveries)

    async def test_lag_lists_every_partition_with_its_waiting_events(
        self, store: Opened, other: Opened
    ) -> None:
        every = list(range(store.bus.partitions + 1))
        idle = await store.bus.lag()
        assert [lag.partition for lag in idle] == every
        assert all((lag.owner, lag.waiting, lag.oldest_at) == (None, 0, None) for lag in idle)
        await store.publish([click(f"u{n}", n) for n in range(20)])
        waiting: Tally[int] = Tally()
        for batch in await store.read(await store.hold()):
            waiting[batch.lease.partition] = len(batch.deliveries)
        lags = await other.bus.lag()
        assert {lag.partition: lag.waiting for lag in lags} == {p: waiting[p] for p in every}
        assert all((lag.oldest_at is None) == (lag.waiting == 0) for lag in lags)

    async def test_lag_counts_events_that_were_read_and_not_committed(self, store: Opened) -> None:
        _, batch = await store.take_clicks(3)
        assert (await self._lag(store, batch.lease)).waiting == 3
        await store.bus.commit(outcome(batch))
        done = await self._lag(store, batch.lease)
        assert (done.waiting, done.oldest_at, done.committed) == (0, None, 3)

    async def test_lag_has_the_time_of_the_oldest_waiting_event(self, store: Opened) -> None:
        began = datetime.now(UTC) - CLOCKS_APART
        _, batch = await store.take_clicks(1)
        first = (await self._lag(store, batch.lease)).oldest_at
        assert first is not None
        assert began <= first <= datetime.now(UTC) + CLOCKS_APART
        await store.publish([click(number=1)])
        assert (await self._lag(store, batch.lease)).oldest_at == first
        await store.bus.commit(outcome(batch))
        second = await self._lag(store, batch.lease)
        assert second.waiting == 1
        assert second.oldest_at is not None
        assert second.oldest_at >= first

    async def test_lag_names_the_owner_of_a_partition_until_it_is_released(
        self, store: Opened, other: Opened
    ) -> None:
        (held,) = await store.hold("w1", [0])
        assert [lag.owner for lag in (await other.bus.lag())[:2]] == ["w1", None]
        await store.leases.release([held])
        assert (await other.bus.lag())[0].owner is None

    async def _lag(self, store: Opened, lease: Lease) -> ConsumerLag:
        """Return the lag of the partition of a lease."""
        return (await store.bus.lag())[lease.partition]

    async def _superseded(self, store: Opened) -> Lease:
        """Return a lease that is void because its partition has another owner."""
        (void,) = await store.hold("w1", [0])
        await store.leases.release([void])
        assert await store.hold("w2", [0])
        return void

    async def _assert_untouched(self, store: Opened, leases: list[Lease]) -> None:
        """Assert that nothing of an outcome for two clicks of u1 was stored."""
        assert numbers(await store.only_batch(leases)) == [0, 1]
        (cells,) = await store.online.get("User", ["u1"])
        assert "clicks" not in cells
        assert await store.value_at(after(MANY)) is None
        assert await store.letters() == []
        assert await store.bus.backlog() == 2


def _tick(seconds: float, *, everywhere: bool = False) -> Tick:
    event = ServiceEvent("headwater.refresh", "score", {}, START, f"tick:{seconds:g}")
    return Tick("score", after(seconds), Interval(MINUTE), event, everywhere)
