"""Conformance tests of waiting for commits, a part of the ``Bus`` port."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from conformance.suite import (
    Connect,
    Opened,
    Suite,
    change,
    click,
    clicks,
    dead_letter,
    outcome,
)
from headwater.ports import Awaited

DAY = timedelta(days=1)
PATIENCE = 60
GROUP = "workers"
NOTHING: frozenset[str] = frozenset()


async def publish(store: Opened, *entity_ids: str) -> list[Awaited]:
    """Publish an event of each entity; return them as a publisher waits for them."""
    events = [click(entity_id) for entity_id in entity_ids or ("u1",)]
    results = await store.bus.publish(events, dedup_window=None, positions=True)
    return [
        Awaited(event.entity_id, result.position)
        for event, result in zip(events, results, strict=True)
    ]


class CommitWaitsConformance(Suite):
    """A publisher waits until a consumer group has committed its events."""

    async def test_an_event_has_a_position_if_it_is_appended(self, store: Opened) -> None:
        twice = [click(event_id="e1"), click("u2", event_id="e2"), click(event_id="e1")]
        results = await store.bus.publish(twice, dedup_window=DAY, positions=True)
        batches = await store.read(await store.hold())
        stored = {d.event.event_id: d.position for batch in batches for d in batch.deliveries}
        assert [result.position for result in results] == [stored["e1"], stored["e2"], ""]

    async def test_an_event_has_no_position_unless_it_is_asked_for(self, store: Opened) -> None:
        (result,) = await store.publish([click()])
        assert result.position == ""

    async def test_an_event_is_handled_when_the_group_has_committed_it(
        self, store: Opened, other: Opened
    ) -> None:
        awaited = await publish(store)
        leases = await store.hold()
        batch = await store.only_batch(leases)
        assert await other.bus.handled(GROUP, awaited) == [None]
        await store.bus.commit(outcome(batch))
        assert await other.bus.handled(GROUP, awaited) == [NOTHING]

    async def test_a_commit_of_another_process_ends_the_wait_by_a_notification(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        for number in range(3):
            awaited = await publish(other)
            async with asyncio.timeout(PATIENCE):
                waiting = asyncio.create_task(other.bus.handled(GROUP, awaited, wait=True))
                batch = await store.only_batch(leases)
                assert not waiting.done()
                await store.bus.commit(outcome(batch, [change(number)]))
                assert await waiting == [NOTHING]
            assert await other.value_online() == number

    async def test_a_commit_of_the_same_process_ends_the_wait(self, store: Opened) -> None:
        leases = await store.hold()
        awaited = await publish(store)
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(store.bus.handled(GROUP, awaited, wait=True))
            await store.bus.commit(outcome(await store.only_batch(leases)))
            assert await waiting == [NOTHING]

    async def test_no_commit_is_missed_whenever_the_wait_begins(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        async with asyncio.timeout(PATIENCE):
            for turns in range(40):
                awaited = await publish(other)
                batch = await store.only_batch(leases)
                committing = asyncio.create_task(store.bus.commit(outcome(batch)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                assert await other.bus.handled(GROUP, awaited, wait=True) == [NOTHING]
                await committing

    async def test_earlier_events_of_the_partition_do_not_end_the_wait(
        self, store: Opened, other: Opened
    ) -> None:
        leases, first = await store.take_clicks(1)
        awaited = await publish(other)
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(other.bus.handled(GROUP, awaited, wait=True))
            await store.bus.commit(outcome(first))
            batch = await store.only_batch(leases)
            assert await other.bus.handled(GROUP, awaited) == [None]
            assert not waiting.done()
            await store.bus.commit(outcome(batch))
            assert await waiting == [NOTHING]

    async def test_events_of_several_partitions_are_awaited_together(
        self, store: Opened, other: Opened
    ) -> None:
        awaited = await publish(other, *(f"u{number}" for number in range(20)))
        batches = await store.read(await store.hold())
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(other.bus.handled(GROUP, awaited, wait=True))
            for batch in batches:
                assert not waiting.done()
                await store.bus.commit(outcome(batch))
            assert await waiting == [NOTHING] * 20

    async def test_many_wait_for_the_same_commit(self, store: Opened, other: Opened) -> None:
        leases = await store.hold()
        awaited = await publish(store)
        async with asyncio.timeout(PATIENCE):
            waits = [
                asyncio.create_task(opened.bus.handled(GROUP, awaited, wait=True))
                for opened in [store, other] * 10
            ]
            await store.bus.commit(outcome(await store.only_batch(leases)))
            assert await asyncio.gather(*waits) == [[NOTHING]] * 20

    async def test_a_wait_that_is_cancelled_leaves_the_others(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        awaited = await publish(other)
        first, second = [
            asyncio.create_task(other.bus.handled(GROUP, awaited, wait=True)) for _ in range(2)
        ]
        batch = await store.only_batch(leases)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await store.bus.commit(outcome(batch))
        async with asyncio.timeout(PATIENCE):
            assert await second == [NOTHING]

    async def test_an_event_without_a_position_stands_for_those_that_its_partition_has(
        self, store: Opened, other: Opened
    ) -> None:
        leases, batch = await store.take_clicks(2)
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(other.bus.handled(GROUP, [Awaited("u1")], wait=True))
            await asyncio.sleep(0)
            assert await other.bus.handled(GROUP, [Awaited("u1")]) == [None]
            await store.bus.commit(outcome(batch, follow_ups=[click(number=8)]))
            assert await waiting == [NOTHING]
        await store.bus.commit(outcome(await store.only_batch(leases)))
        assert await other.bus.handled(GROUP, [Awaited("u1")], wait=True) == [NOTHING]

    async def test_an_empty_partition_needs_no_wait(self, store: Opened) -> None:
        async with asyncio.timeout(PATIENCE):
            assert await store.bus.handled(GROUP, [Awaited("u1")], wait=True) == [NOTHING]
            assert await store.bus.handled(GROUP, [], wait=True) == []

    async def test_series_that_could_not_handle_the_event_are_named(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        first = await publish(store)
        batch = await store.only_batch(leases)
        await store.bus.commit(outcome(batch, dead=[dead_letter(batch, "visits")]))
        second = await publish(store)
        await store.bus.commit(outcome(await store.only_batch(leases)))
        failed = frozenset({"visits"})
        assert await other.bus.handled(GROUP, [*first, *second]) == [failed, NOTHING]
        assert await other.bus.handled(GROUP, [Awaited("u1"), Awaited("u2")]) == [failed, NOTHING]

    async def test_each_consumer_group_commits_for_itself(
        self, store: Opened, connect: Connect
    ) -> None:
        reports = await Opened.by(connect, group="reports")
        awaited = await publish(store)
        batch = await store.only_batch(await store.hold("w1"))
        report = await reports.only_batch(await reports.hold("r1"))
        await store.bus.commit(outcome(batch))
        assert await store.bus.handled("reports", awaited) == [None]
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(store.bus.handled("reports", awaited, wait=True))
            await asyncio.sleep(0)
            await reports.bus.commit(outcome(report))
            assert await waiting == [NOTHING]

    async def test_an_event_waits_for_a_group_that_no_worker_has_begun(
        self, store: Opened, other: Opened
    ) -> None:
        awaited = await publish(store)
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(other.bus.handled(GROUP, awaited, wait=True))
            leases = await store.hold()
            assert not waiting.done()
            await store.bus.commit(outcome(await store.only_batch(leases)))
            assert await waiting == [NOTHING]

    async def test_waiting_leaves_the_positions_of_the_group_alone(self, store: Opened) -> None:
        await store.publish(clicks(3))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store.bus.handled(GROUP, [Awaited("u1")], wait=True)
        assert len((await store.only_batch(await store.hold())).deliveries) == 3
