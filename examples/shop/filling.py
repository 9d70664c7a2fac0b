"""Fill the store of the shop with a made-up week, by the public verbs and a clock in the past.

Run in the shop's folder, as a process: `python -m headwater.cli.demo.shop.filling DAYS`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from headwater.cli.demo.shop.week import Event, Happening, Mail, Milestone, Question, plan
from headwater.declarations.runtime import runtime_of
from headwater.errors import FreshnessSLAError
from headwater.model.contexts import Overrides
from headwater.model.values import ServiceEvent
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store
from headwater.testing import ManualClock

_BEFORE_RELEASE = {
    'Index(store, "help", chunk_tokens=48, overlap=0)': 'Index(store, "help")',
    'trigger=["purchase", "refund"]': 'trigger="purchase"',
    'version="7"': 'version="6"',
}
"""Parts of the features file, and the earlier code that the release in midweek replaces."""
_CHANGED_COLUMN = ("lead_days", "lead_time_days")
"""A column of the suppliers' file, and its name after they changed it: the refresh fails."""
_LONGEST_WAIT = timedelta(minutes=10)
_LONGEST_QUIET = timedelta(hours=1)
_PERSONAL = "phone number"


class Filler:
    """Lets a plan happen in a store, at the times of the plan."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._drained_at = clock.now()
        self._has_worker = True
        self._collected: list[ServiceEvent] = []
        self._questions: dict[str, str] = {}
        """The questions of customers by context."""

    async def run(self, store: FeatureStore, happenings: Iterable[Happening]) -> None:
        """Do what the plan says; afterwards no event waits."""
        self._store = store
        for happening in happenings:
            await self._wait_until(happening.at)
            match happening.what:
                case Event() as event:
                    self._collected.append(_as_sent(event, happening.at))
                case Question() as question:
                    await self._ask(question)
                case Mail(content, inputs):
                    await self._store.record_external(
                        name="newsletter", content=content, inputs=inputs, model="gpt-4o-mini"
                    )
                case milestone:
                    await self._pass(milestone)
        self._has_worker = True
        await self._drain()

    async def _wait_until(self, moment: datetime) -> None:
        """Move the clock; meanwhile events are sent and handled, and schedules run."""
        while moment - self._drained_at > _LONGEST_WAIT:
            pause = _LONGEST_WAIT if self._collected else _LONGEST_QUIET
            self._move_to(min(self._drained_at + pause, moment))
            await self._drain()
        self._move_to(moment)

    def _move_to(self, moment: datetime) -> None:
        if moment > self._clock.now():  # the pauses between retries have moved it, too
            self._clock.advance(moment - self._clock.now())

    async def _send(self) -> None:
        """Publish the events that the shop has collected, as it does every few minutes."""
        collected, self._collected = self._collected, []
        if collected:
            await self._store.bus.publish_many(collected)

    async def _ask(self, question: Question) -> None:
        await self._drain()
        overrides = Overrides(interaction_ref=question.interaction)
        if question.max_tokens is not None:
            overrides = msgspec.structs.replace(overrides, max_tokens=question.max_tokens)
        try:
            asked = await self._store.assemble(question.context, question.params, overrides)
        except FreshnessSLAError:
            return  # the refusal is recorded
        for outcome in question.outcomes(asked.messages, asked.tokens):
            await asked.add_outcome(**outcome)
        if question.is_helpful is not None:
            rating = question.rating(asked.context_id)
            self._collected.append(_as_sent(rating, self._clock.now()))
        if "question" in question.params:
            self._questions[asked.context_id] = question.params["question"]

    async def _drain(self) -> None:
        await self._send()
        self._drained_at = self._clock.now()
        if self._has_worker:
            await self._store.drain()

    async def _pass(self, milestone: Milestone) -> None:
        match milestone:
            case "worker stops":
                await self._drain()
                self._has_worker = False
            case "worker starts":
                self._has_worker = True
            case "feed changes":
                _rename_column()
            case "redaction":
                await self._redact()
            case "release":
                await self._store.indexes.reindex("help")
                await self._drain()
                await self._store.backfills.run("total_spend", switch=True)

    async def _redact(self) -> None:
        """Erase the question of one context, best one with personal data."""
        questions = sorted(
            self._questions, key=lambda question: _PERSONAL not in self._questions[question]
        )
        for context_id in questions[:1]:
            await self._store.records.redact(
                context_id,
                "/inputs/question",
                everywhere=True,
                reason="the customer asked to erase it",
                by="dpo",
            )


def _as_sent(event: Event, at: datetime) -> ServiceEvent:
    return ServiceEvent(event.event_type, event.entity_id, event.payload, at - event.late)


def _rename_column() -> None:
    feed = Path("suppliers.csv")
    feed.write_text(feed.read_text(encoding="utf-8").replace(*_CHANGED_COLUMN), encoding="utf-8")


def _releases(
    happenings: Sequence[Happening],
) -> Iterator[tuple[FeatureStore, Iterable[Happening]]]:
    """Yield the store as it was declared before and after the release, with the plan of each."""
    file = Path("features.py")
    released = file.read_text(encoding="utf-8")
    earlier = released
    for now, before in _BEFORE_RELEASE.items():
        earlier = earlier.replace(now, before)
    position = [happening.what for happening in happenings].index("release")
    for source, part in ((earlier, happenings[:position]), (released, happenings[position:])):
        file.write_text(source, encoding="utf-8")
        yield load_store(file), part


async def fill(days: int) -> None:
    """Fill the store of the features file in the working directory."""
    happenings = plan(datetime.now(UTC), days)
    clock = ManualClock(happenings[0].at)
    filler = Filler(clock)
    for store, part in _releases(happenings):
        await runtime_of(store).rebind(store.settings, clock)
        async with store:
            await filler.run(store, part)


if __name__ == "__main__":
    asyncio.run(fill(int(sys.argv[1])))
