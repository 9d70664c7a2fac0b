"""Conformance tests of the ``DeadLetters`` port."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from conformance.suite import (
    START,
    Opened,
    Suite,
    after,
    click,
    dead_letter,
    outcome,
)
from headwater.errors import UnknownDeadLetterError
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import LONGEST_ID, ServiceEvent
from headwater.ports import Lease, LetterSummary


class DeadLettersConformance(Suite):
    """Events that a feature could not handle, kept until they are redriven or discarded."""

    async def test_a_letter_keeps_the_event_the_feature_the_error_the_attempts_and_the_times(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        written = await self._fail(store, leases, click(number=3))
        (letter,) = await other.letters()
        assert letter == msgspec.structs.replace(written, id=letter.id, group="workers")
        assert letter.id

    async def test_letters_are_listed_oldest_first(self, store: Opened) -> None:
        leases = await store.hold()
        for number in range(3):
            await self._fail(store, leases, click(f"u{number}", number))
        letters = await store.letters()
        assert [letter.event.payload["number"] for letter in letters] == [0, 1, 2]
        assert await store.letters(limit=2) == letters[:2]

    async def test_letters_can_be_listed_by_feature_and_by_event_type(self, store: Opened) -> None:
        leases = await store.hold()
        view = ServiceEvent("view", "u1", {"number": 1}, START)
        await self._fail(store, leases, click(number=0), "clicks")
        await self._fail(store, leases, view, "clicks")
        await self._fail(store, leases, view, "visits")
        listed = store.letters
        by_feature = [letter.event.event_type for letter in await listed(feature="clicks")]
        assert by_feature == ["click", "view"]
        assert [letter.feature for letter in await listed(event_type="view")] == [
            "clicks",
            "visits",
        ]
        (both,) = await listed(feature="visits", event_type="view")
        assert (both.feature, both.event) == ("visits", view)
        assert await listed(feature="visits", event_type="click") == []

    async def test_letters_can_be_listed_by_entity_id_and_by_id(self, store: Opened) -> None:
        leases = await store.hold()
        for number in range(3):
            await self._fail(store, leases, click(f"u{number % 2}", number))
        listed = store.letters
        first, second, third = await listed()
        assert await listed(entity_id="u0") == [first, third]
        assert await listed(entity_id="u0", limit=1) == [first]
        assert await listed(entity_id="u") == []
        assert await listed(ids=[third.id, first.id]) == [first, third]
        assert await listed(ids=[second.id, "999999", "no id"]) == [second]
        assert await listed(ids=[second.id], entity_id="u0") == []
        assert await listed(ids=[]) == []
        assert await listed(ids=[second.id, f"{'9' * 20}-{'9' * 20}", "9" * 20]) == [second]
        every = [third.id, first.id, second.id]
        assert await listed(ids=every, newest_first=True, limit=2) == [third, second]
        assert await listed(ids=every, newest_first=True, after=second.id) == [first]
        assert await listed(ids=every, after=first.id) == [second, third]

    async def test_letters_can_be_listed_by_dead_at(self, store: Opened) -> None:
        leases = await store.hold()
        for number in range(3):
            await self._fail(store, leases, click(number=number), at=after(number))
        listed = store.letters
        first, second, third = await listed()
        assert await listed(since=second.dead_at) == [second, third]
        assert await listed(before=second.dead_at) == [first]
        assert await listed(since=second.dead_at, before=third.dead_at) == [second]
        assert await listed(since=third.dead_at + timedelta(microseconds=1)) == []

    async def test_letters_can_be_listed_by_the_pattern_of_their_error(self, store: Opened) -> None:
        leases = await store.hold()
        for number, error in enumerate(("no order 17", "no order 4", "no user 'Ada B'")):
            await self._fail(store, leases, click(number=number), error=error)
        by_pattern = await store.letters(error="no order <n>")
        assert [letter.error for letter in by_pattern] == ["no order 17", "no order 4"]
        (other,) = await store.letters(error="no user '<text>'")
        assert other.error == "no user 'Ada B'"
        assert await store.letters(error="no order 17") == []

    async def test_letters_can_be_listed_page_by_page_in_both_orders(self, store: Opened) -> None:
        leases = await store.hold()
        for number in range(5):
            await self._fail(store, leases, click(number=number))
        letters = await store.letters()
        listed = store.letters
        assert await listed(after=letters[1].id, limit=2) == letters[2:4]
        assert await listed(newest_first=True, limit=2) == [letters[4], letters[3]]
        assert await listed(newest_first=True, after=letters[3].id) == letters[2::-1]
        assert await listed(after=letters[4].id) == []
        for invalid in ("", "no id", "1 OR 1", f"{'9' * 20}-{'9' * 20}"):
            assert await listed(after=invalid) == []

    async def test_summaries_are_newest_first(self, store: Opened) -> None:
        leases = await store.hold()
        for number in range(3):
            await self._fail(store, leases, click(number=number))
        newest, *_ = letters = (await store.letters())[::-1]
        summaries = await store.dead_letters.summaries(10)
        assert [summary.id for summary in summaries] == [letter.id for letter in letters]
        assert summaries[0] == LetterSummary(
            id=newest.id,
            feature=newest.feature,
            event_type="click",
            error=newest.error,
            attempts=newest.attempts,
            first_failed_at=newest.first_failed_at,
            dead_at=newest.dead_at,
        )
        assert await store.dead_letters.summaries(2) == summaries[:2]

    async def test_letters_are_counted(self, store: Opened, other: Opened) -> None:
        leases = await store.hold()
        assert await store.dead_letters.count() == 0
        for number in range(3):
            await self._fail(store, leases, click(f"u{number}", number))
        assert await other.dead_letters.count() == 3
        first, second, _ = await other.letters()
        await other.dead_letters.redrive([first.id])
        await other.dead_letters.discard([second.id])
        assert await store.dead_letters.count() == 1

    async def test_redrive_publishes_each_again_for_its_failed_feature_only_and_removes_it(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await store.hold()
        event = click(number=3, event_id="e1")
        await self._fail(store, leases, event, "visits")
        (letter,) = await store.letters()
        await other.dead_letters.redrive([letter.id])
        assert await store.letters() == []
        batch = await store.only_batch(leases)
        (delivery,) = batch.deliveries
        assert (delivery.only, delivery.group) == ("visits", "workers")
        assert delivery.event.event_id == f"redrive:{letter.id}:e1"
        assert msgspec.structs.replace(delivery.event, event_id="e1") == event
        assert batch.lease.partition == letter.partition

    async def test_redrive_of_an_unknown_letter_is_refused_and_the_others_stay(
        self, store: Opened
    ) -> None:
        leases = await store.hold()
        await self._fail(store, leases, click())
        (letter,) = await store.letters()
        with pytest.raises(UnknownDeadLetterError):
            await store.dead_letters.redrive([letter.id, "999999"])
        assert await store.letters() == [letter]
        assert await store.bus.backlog() == 0

    async def test_a_letter_is_redriven_once(self, store: Opened) -> None:
        leases = await store.hold()
        await self._fail(store, leases, click())
        (letter,) = await store.letters()
        await store.dead_letters.redrive([letter.id])
        with pytest.raises(UnknownDeadLetterError):
            await store.dead_letters.redrive([letter.id])
        assert await store.bus.backlog() == 1

    async def test_a_letter_that_fails_again_gets_a_new_id_and_names_the_original_event(
        self, store: Opened
    ) -> None:
        leases = await store.hold()
        await self._fail(store, leases, click(event_id="order:1"))
        (first,) = await store.letters()
        await store.dead_letters.redrive([first.id])
        batch = await store.only_batch(leases)
        await store.bus.commit(outcome(batch, dead=[dead_letter(batch)]))
        (second,) = await store.letters()
        assert second.id != first.id
        assert second.event.event_id == f"redrive:{first.id}:order:1"
        await store.dead_letters.redrive([second.id])
        (delivery,) = (await store.only_batch(leases)).deliveries
        assert delivery.event.event_id == f"redrive:{second.id}:order:1"

    async def test_a_letter_of_an_event_with_the_longest_id_can_be_redriven(
        self, store: Opened
    ) -> None:
        leases = await store.hold()
        await self._fail(store, leases, click(event_id="e" * LONGEST_ID))
        (letter,) = await store.letters()
        await store.dead_letters.redrive([letter.id])
        (delivery,) = (await store.only_batch(leases)).deliveries
        assert delivery.event.event_id == f"redrive:{letter.id}"

    async def test_discard_removes_letters_permanently(self, store: Opened) -> None:
        leases = await store.hold()
        for number in range(3):
            await self._fail(store, leases, click(f"u{number}", number))
        first, second, third = await store.letters()
        await store.dead_letters.discard([first.id, third.id])
        assert await store.letters() == [second]
        assert await store.bus.backlog() == 0
        with pytest.raises(UnknownDeadLetterError):
            await store.dead_letters.discard([second.id, third.id])
        assert await store.letters() == [second]

    async def _fail(
        self,
        store: Opened,
        leases: list[Lease],
        event: ServiceEvent,
        feature: str = "clicks",
        *,
        at: datetime = START,
        error: str = "ValueError: no",
    ) -> DeadLetter:
        """Publish an event and commit a dead letter for it."""
        await store.bus.publish([event], dedup_window=None)
        batch = await store.only_batch(leases)
        letter = msgspec.structs.replace(dead_letter(batch, feature, at=at), error=error)
        await store.bus.commit(outcome(batch, dead=[letter]))
        return letter
