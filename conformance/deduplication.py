"""Conformance tests of deduplication, a part of the ``Bus`` port."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from conformance.suite import START, Opened, Suite, click, numbers, until
from headwater.model.values import ServiceEvent

DAY = timedelta(days=1)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class DeduplicationConformance(Suite):
    """One rule for repeated event ids: an id belongs to its entity, and to its content."""

    async def test_an_event_id_published_again_within_the_dedup_window_is_accepted_once(
        self, store: Opened, other: Opened
    ) -> None:
        first, again = click(number=1, event_id="e1"), click(number=1, event_id="e1")
        answers = [
            *await store.bus.publish([first], dedup_window=DAY),
            *await other.bus.publish([again, click(number=3, event_id="e2")], dedup_window=DAY),
        ]
        assert [(a.event_id, a.duplicate) for a in answers] == [
            ("e1", False),
            ("e1", True),
            ("e2", False),
        ]
        assert numbers(await store.only_batch(await store.hold())) == [1, 3]

    async def test_an_event_id_published_twice_in_one_batch_is_accepted_once(
        self, store: Opened
    ) -> None:
        twice = [click(number=1, event_id="e1"), click(number=1, event_id="e1")]
        answers = await store.bus.publish(twice, dedup_window=DAY)
        assert [answer.duplicate for answer in answers] == [False, True]
        assert await store.bus.backlog() == 1

    async def test_an_event_id_published_for_another_entity_is_another_event(
        self, store: Opened, other: Opened
    ) -> None:
        events = [click(f"u{number}", event_id="e1") for number in range(40)]
        for again in (False, True):
            answers = await (other if again else store).bus.publish(events, dedup_window=DAY)
            assert [answer.duplicate for answer in answers] == [again] * 40
        assert await store.bus.backlog() == 40

    @pytest.mark.parametrize(
        ("change", "difference"),
        [
            ({"event_type": "view"}, "event_type was 'click', is 'view'"),
            ({"payload": {"number": 2}}, "payload differs"),
            ({"timestamp": START + timedelta(microseconds=1)}, "timestamp was 2026-01-01T00:00:00"),
        ],
    )
    async def test_an_event_id_published_again_with_other_content_is_a_conflict(
        self, store: Opened, other: Opened, change: dict[str, Any], difference: str
    ) -> None:
        first = msgspec.structs.replace(click(number=1, event_id="e1"), timestamp=START)
        await store.bus.publish([first], dedup_window=DAY)
        changed = msgspec.structs.replace(first, **change)
        new = click(number=3, event_id="e2")
        conflict, accepted = await other.bus.publish([changed, new], dedup_window=DAY)
        assert (conflict.event_id, conflict.duplicate) == ("e1", False)
        assert conflict.conflict.startswith(difference)
        assert (accepted.duplicate, accepted.conflict) == (False, "")
        (again,) = await store.bus.publish([first], dedup_window=DAY)
        assert (again.duplicate, again.conflict) == (True, "")
        assert numbers(await store.only_batch(await store.hold())) == [1, 3]

    async def test_a_timestamp_that_the_sender_did_not_give_is_not_compared(
        self, store: Opened
    ) -> None:
        events = [
            ServiceEvent("click", "u1", {"number": 1}, event_id="e1"),
            ServiceEvent("click", "u1", {"number": 1}, event_id="e1"),
            ServiceEvent("click", "u1", {"number": 1}, START, "e1"),
        ]
        answers = await store.bus.publish(events, dedup_window=DAY)
        assert [(a.duplicate, a.conflict) for a in answers] == [
            (False, ""),
            (True, ""),
            (True, ""),
        ]

    async def test_a_given_timestamp_is_compared_whatever_its_fold(self, store: Opened) -> None:
        given = ServiceEvent("click", "u1", {"number": 1}, START.replace(fold=1), "e1")
        later = msgspec.structs.replace(given, timestamp=given.timestamp + timedelta(seconds=1))
        unsent = ServiceEvent("click", "u1", {"number": 1}, event_id="e2")
        timed = msgspec.structs.replace(unsent, timestamp=START)
        (first, conflict, *_) = await store.bus.publish([given, later], dedup_window=DAY)
        assert (first.duplicate, first.conflict) == (False, "")
        assert conflict.conflict.startswith("timestamp was")
        answers = await store.bus.publish(
            [timed, msgspec.structs.replace(timed, timestamp=START + timedelta(seconds=1))],
            dedup_window=DAY,
        )
        assert [bool(answer.conflict) for answer in answers] == [False, True]

    async def test_the_trace_context_of_an_event_is_read_with_it_and_not_compared(
        self, store: Opened
    ) -> None:
        traced = msgspec.structs.replace(click(number=1, event_id="e1"), traceparent=TRACEPARENT)
        untraced = msgspec.structs.replace(traced, traceparent=msgspec.UNSET)
        answers = await store.bus.publish([traced, untraced], dedup_window=DAY)
        assert [(a.duplicate, a.conflict) for a in answers] == [(False, ""), (True, "")]
        (delivery,) = (await store.only_batch(await store.hold())).deliveries
        assert delivery.event.traceparent == TRACEPARENT

    async def test_an_event_id_published_at_the_same_time_by_many_is_accepted_once(
        self, store: Opened, other: Opened
    ) -> None:
        # On Kafka, the first event begins the feed, so that no process waits for another's start.
        await store.publish([click(event_id="e0")])
        answers = await asyncio.gather(
            *(
                bus.publish([click(event_id="e1")], dedup_window=DAY)
                for bus in [store.bus, other.bus] * 10
            )
        )
        assert sum(not answer.duplicate for (answer,) in answers) == 1
        assert await store.bus.backlog() == 2

    async def test_an_event_id_published_again_after_the_dedup_window_is_a_new_event(
        self, store: Opened
    ) -> None:
        event = click(event_id="e1")
        await store.bus.publish([event], dedup_window=timedelta(milliseconds=20))

        async def accepted() -> bool:
            (again,) = await store.bus.publish([event], dedup_window=DAY)
            return not again.duplicate

        await until(accepted)
        assert await store.bus.backlog() == 2
