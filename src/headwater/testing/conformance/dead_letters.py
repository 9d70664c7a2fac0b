"""Conformance tests of the ``DeadLetters`` port."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from headwater.core.values import ServiceEvent
from headwater.errors import UnknownDeadLetterError
from headwater.ports import Backends, DeadLetter, Lease
from headwater.testing.conformance.suite import (
    START,
    Connect,
    Suite,
    after,
    click,
    dead_letter,
    hold,
    only_batch,
    outcome,
)


class DeadLettersConformance(Suite):
    """Events that a feature could not handle, kept until they are redriven or discarded."""

    async def test_a_letter_keeps_the_event_the_feature_the_error_the_attempts_and_the_times(
        self, connect: Connect
    ) -> None:
        backends = await connect()
        leases = await hold(backends)
        written = await self._fail(backends, leases, click(number=3))
        (letter,) = await (await connect()).dead_letters.letters()
        assert letter == msgspec.structs.replace(written, id=letter.id)
        assert letter.id

    async def test_letters_are_listed_oldest_first(self, backends: Backends) -> None:
        leases = await hold(backends)
        for number in range(3):
            await self._fail(backends, leases, click(f"u{number}", number))
        letters = await backends.dead_letters.letters()
        assert [letter.event.payload["number"] for letter in letters] == [0, 1, 2]
        assert await backends.dead_letters.letters(limit=2) == letters[:2]

    async def test_letters_can_be_listed_by_feature_and_by_event_type(
        self, backends: Backends
    ) -> None:
        leases = await hold(backends)
        view = ServiceEvent("view", "u1", {"number": 1}, START)
        await self._fail(backends, leases, click(number=0), "clicks")
        await self._fail(backends, leases, view, "clicks")
        await self._fail(backends, leases, view, "visits")
        listed = backends.dead_letters.letters
        by_feature = [letter.event.event_type for letter in await listed(feature="clicks")]
        assert by_feature == ["click", "view"]
        assert [letter.feature for letter in await listed(event_type="view")] == [
            "clicks",
            "visits",
        ]
        (both,) = await listed(feature="visits", event_type="view")
        assert (both.feature, both.event) == ("visits", view)
        assert await listed(feature="visits", event_type="click") == []

    async def test_letters_can_be_listed_by_entity_id_and_by_id(self, backends: Backends) -> None:
        leases = await hold(backends)
        for number in range(3):
            await self._fail(backends, leases, click(f"u{number % 2}", number))
        listed = backends.dead_letters.letters
        first, second, third = await listed()
        assert await listed(entity_id="u0") == [first, third]
        assert await listed(entity_id="u0", limit=1) == [first]
        assert await listed(entity_id="u") == []
        assert await listed(ids=[third.id, first.id]) == [first, third]
        assert await listed(ids=[second.id, "999999", "no id"]) == [second]
        assert await listed(ids=[second.id], entity_id="u0") == []
        assert await listed(ids=[]) == []

    async def test_letters_can_be_listed_by_dead_at(self, backends: Backends) -> None:
        leases = await hold(backends)
        for number in range(3):
            await self._fail(backends, leases, click(number=number), at=after(number))
        listed = backends.dead_letters.letters
        first, second, third = await listed()
        assert await listed(since=second.dead_at) == [second, third]
        assert await listed(before=second.dead_at) == [first]
        assert await listed(since=second.dead_at, before=third.dead_at) == [second]
        assert await listed(since=third.dead_at + timedelta(microseconds=1)) == []

    async def test_letters_are_counted(self, connect: Connect) -> None:
        backends = await connect()
        leases = await hold(backends)
        assert await backends.dead_letters.count() == 0
        for number in range(3):
            await self._fail(backends, leases, click(f"u{number}", number))
        other = (await connect()).dead_letters
        assert await other.count() == 3
        first, second, _ = await other.letters()
        await other.redrive([first.id])
        await other.discard([second.id])
        assert await backends.dead_letters.count() == 1

    async def test_redrive_publishes_each_again_for_its_failed_feature_only_and_removes_it(
        self, connect: Connect
    ) -> None:
        backends = await connect()
        leases = await hold(backends)
        event = click(number=3, event_id="e1")
        await self._fail(backends, leases, event, "visits")
        (letter,) = await backends.dead_letters.letters()
        await (await connect()).dead_letters.redrive([letter.id])
        assert await backends.dead_letters.letters() == []
        batch = await only_batch(backends, leases)
        (delivery,) = batch.deliveries
        assert delivery.only == "visits"
        assert delivery.event.event_id == f"redrive:{letter.id}"
        assert msgspec.structs.replace(delivery.event, event_id="e1") == event
        assert batch.lease.partition == letter.partition

    async def test_redrive_of_an_unknown_letter_is_refused_and_the_others_stay(
        self, backends: Backends
    ) -> None:
        leases = await hold(backends)
        await self._fail(backends, leases, click())
        (letter,) = await backends.dead_letters.letters()
        with pytest.raises(UnknownDeadLetterError):
            await backends.dead_letters.redrive([letter.id, "999999"])
        assert await backends.dead_letters.letters() == [letter]
        assert await backends.bus.backlog() == 0

    async def test_a_letter_is_redriven_once(self, backends: Backends) -> None:
        leases = await hold(backends)
        await self._fail(backends, leases, click())
        (letter,) = await backends.dead_letters.letters()
        await backends.dead_letters.redrive([letter.id])
        with pytest.raises(UnknownDeadLetterError):
            await backends.dead_letters.redrive([letter.id])
        assert await backends.bus.backlog() == 1

    async def test_a_letter_that_fails_again_gets_a_new_id(self, backends: Backends) -> None:
        leases = await hold(backends)
        await self._fail(backends, leases, click())
        (first,) = await backends.dead_letters.letters()
        await backends.dead_letters.redrive([first.id])
        batch = await only_batch(backends, leases)
        await backends.bus.commit(outcome(batch, dead=[dead_letter(batch)]))
        (second,) = await backends.dead_letters.letters()
        assert second.id != first.id

    async def test_discard_removes_letters_permanently(self, backends: Backends) -> None:
        leases = await hold(backends)
        for number in range(3):
            await self._fail(backends, leases, click(f"u{number}", number))
        first, second, third = await backends.dead_letters.letters()
        await backends.dead_letters.discard([first.id, third.id])
        assert await backends.dead_letters.letters() == [second]
        assert await backends.bus.backlog() == 0
        with pytest.raises(UnknownDeadLetterError):
            await backends.dead_letters.discard([second.id, third.id])
        assert await backends.dead_letters.letters() == [second]

    async def _fail(
        self,
        backends: Backends,
        leases: list[Lease],
        event: ServiceEvent,
        feature: str = "clicks",
        *,
        at: datetime = START,
    ) -> DeadLetter:
        """Publish an event and commit a dead letter for it."""
        await backends.bus.publish([event], dedup_window=None)
        batch = await only_batch(backends, leases)
        letter = dead_letter(batch, feature, at=at)
        await backends.bus.commit(outcome(batch, dead=[letter]))
        return letter
