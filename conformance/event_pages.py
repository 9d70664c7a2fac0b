"""Conformance tests of the pages of the event log, of the ``OfflineStore`` port."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from conformance.suite import (
    START,
    Opened,
    Suite,
    after,
    change,
    click,
    dead_letter,
    outcome,
    until,
)
from headwater.core.clock import to_micros
from headwater.errors import InvalidInputError
from headwater.model.events import EventPage, FollowedEvent
from headwater.model.values import ServiceEvent
from headwater.ports import EventFilter

_LONG = timedelta(hours=1)


class EventPagesConformance(Suite):
    """The event log as a reader follows it."""

    async def test_followed_events_come_in_the_order_of_the_log_each_once(
        self, store: Opened, other: Opened
    ) -> None:
        start = await end_of(other)
        await store.publish([click(f"u{number % 5}", number) for number in range(20)])
        await store.publish([click(f"u{number % 5}", number) for number in range(20, 30)])
        found = await follow(other, start, 30, limit=7)
        numbers = [each.logged.event.payload["number"] for each in found]
        assert sorted(numbers) == list(range(30))
        for entity in range(5):
            own = [number for number in numbers if number % 5 == entity]
            assert own == sorted(own)
        assert found[0].logged.event == click(
            f"u{numbers[0] % 5}", numbers[0], event_id=found[0].logged.event.event_id
        )
        # Every event has the position after it.
        rest = await follow(other, found[11].position, 18, limit=100)
        assert rest == found[12:]

    async def test_without_a_position_the_end_of_the_log_is_returned(self, store: Opened) -> None:
        await store.publish([click()])
        start = await end_of(store)
        await store.publish([click(number=1)])
        await store.publish([click(number=2)])
        found = await follow(store, start, 2, limit=10)
        # The first one may be there: it was published in the same moment.
        numbers = [each.logged.event.payload["number"] for each in found]
        assert numbers[-2:] in ([0, 1], [1, 2])

    async def test_events_are_followed_by_type_and_by_entity_id(self, store: Opened) -> None:
        start = await end_of(store)
        view = ServiceEvent("view", "u1", {"number": 3}, START)
        await store.publish([click("u1", 1), click("u2", 2), view])
        for only, numbers in (
            (EventFilter("click"), {1, 2}),
            (EventFilter(None, "u1"), {1, 3}),
            (EventFilter("view", "u1"), {3}),
        ):
            found = await follow(store, start, len(numbers), only=only)
            assert {each.logged.event.payload["number"] for each in found} == numbers
        # The position moves on although no event matches.
        page = await _page(store, start, EventFilter("none"))
        assert (page.events, page.has_more) == ([], False)
        assert page.position != start

    async def test_internal_and_redriven_events_are_not_followed(self, store: Opened) -> None:
        leases = await store.hold()
        start = await end_of(store)
        internal = ServiceEvent("headwater.tick", "u1", {}, START)
        await store.publish([internal, click("u1", 1)])
        batch = await store.only_batch(leases)
        await store.bus.commit(outcome(batch, dead=[dead_letter(batch)]))
        (letter,) = await store.letters()
        await store.dead_letters.redrive([letter.id])
        await store.publish([click("u1", 2)])
        found = await follow(store, start, 2)
        assert [each.logged.event.payload["number"] for each in found] == [1, 2]

    async def test_events_that_were_accepted_too_long_ago_are_skipped_and_counted(
        self, store: Opened
    ) -> None:
        start = await end_of(store)
        await store.publish([click("u1", number) for number in range(5)])
        skipped = 0

        async def all_skipped() -> bool:
            nonlocal start, skipped
            page = await store.offline.events_after(
                start, EventFilter("click"), within=timedelta(), limit=10
            )
            assert page.events == []
            start, skipped = page.position, skipped + page.skipped
            return skipped == 5

        await until(all_skipped)

    async def test_the_events_of_entities_come_in_order_with_their_first_written_value(
        self, store: Opened, other: Opened
    ) -> None:
        view = ServiceEvent("view", "u1", {"number": 5}, START)
        published = [click("u1", 1), click("u2", 2), click("u1", 3), click("u3", 4), view]
        await store.publish(published)
        cause = published[0].event_id
        await store.online.put(
            [
                replace(change(written_at=after(5)), cause=cause),
                replace(change(feature="score", written_at=after(4)), cause=cause),
                replace(change(feature="unasked", written_at=after(3)), cause=cause),
                replace(change(entity_id="u2", written_at=after(2)), cause=cause),
            ]
        )
        await store.offline.maintain()
        for types, expected in (
            (["click"], [1, 3]),
            (["click", "view"], [1, 3, 5]),
            (["none"], []),
        ):
            of_u2, of_u9, of_u1 = await other.offline.events_of(
                ["u2", "u9", "u1"], types, ["clicks", "score"]
            )
            assert of_u9 == []
            assert [past.event.payload["number"] for past in of_u1] == expected
            written = [to_micros(after(4)), None, None]
            assert [past.written_at for past in of_u1] == written[: len(expected)]
            assert [past.written_at for past in of_u2] == [None][: len(expected)]
        ((first, _, last),) = await other.offline.events_of(["u1"], ["click", "view"], [])
        assert (first.event, last.event) == (published[0], view)
        assert first.received_at <= last.received_at
        leases = await store.hold()
        batches = await store.read(leases)
        positions = [d.position for batch in batches for d in batch.deliveries]
        assert {first.position, last.position} <= {*positions}

    async def test_events_of_entities_do_not_repeat_those_that_were_redriven(
        self, store: Opened
    ) -> None:
        leases = await store.hold()
        await store.publish([click("u1", 1)])
        batch = await store.only_batch(leases)
        await store.bus.commit(outcome(batch, dead=[dead_letter(batch)]))
        (letter,) = await store.letters()
        await store.dead_letters.redrive([letter.id])
        await store.offline.maintain()
        ((past,),) = await store.offline.events_of(["u1"], ["click"], ["clicks"])
        assert (past.event.payload["number"], past.written_at) == (1, None)

    @pytest.mark.parametrize("position", ["", "x", "-1", "1; DROP TABLE events", "9" * 40])
    async def test_a_text_that_is_not_a_position_is_refused(
        self, store: Opened, position: str
    ) -> None:
        with pytest.raises(InvalidInputError, match="not a position"):
            await _page(store, position, EventFilter())


async def end_of(store: Opened) -> str:
    """Return the position of the end of the log."""
    page = await _page(store, None, EventFilter())
    assert page == EventPage([], page.position)
    return page.position


async def follow(
    store: Opened,
    position: str,
    count: int,
    *,
    limit: int = 100,
    only: EventFilter = EventFilter(),  # noqa: B008 - frozen
) -> list[FollowedEvent]:
    """Follow the log until so many events have arrived."""
    found: list[FollowedEvent] = []

    async def has_all() -> bool:
        nonlocal position
        page = await _page(store, position, only, limit)
        assert len(page.events) <= limit
        found.extend(page.events)
        position = page.position
        return len(found) >= count

    await until(has_all)
    return found


async def _page(
    store: Opened, position: str | None, only: EventFilter, limit: int = 100
) -> EventPage:
    return await store.offline.events_after(position, only, within=_LONG, limit=limit)
