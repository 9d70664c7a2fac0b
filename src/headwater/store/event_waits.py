"""Waiting until published events are visible: until what they trigger has taken effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from headwater.core.durations import Duration, format_duration, to_timedelta
from headwater.core.partitioning import partition_of
from headwater.declarations.run_set import cause_of
from headwater.errors import BackendError, InvalidInputError
from headwater.features.call_scope import current_scope
from headwater.features.caller_limits import limited_caller
from headwater.model.dead_letters import MOST_LETTERS
from headwater.model.events import LONGEST_WAIT, PublishResult
from headwater.model.values import ServiceEvent, original_id
from headwater.ports import Awaited, DeadLetterQuery

if TYPE_CHECKING:
    from headwater.engine.engine import Engine
    from headwater.store.runtime import Runtime

# Workers come and go more slowly than events.
_WORKERS_SECONDS = 1.0
_NO_GROUP = ""
"""Stands for the missing workers of a feature, if all running workers have others."""

EventTypes = Mapping[str, frozenset[str]]
"""The event types that trigger features of the live workers, by consumer group."""
_Verdicts = dict[str, frozenset[str] | None]
"""The series of each group that could not handle an event, None while it waits."""


class _Known(NamedTuple):
    """What the live workers run, and until when that is believed."""

    until: float
    running: EventTypes


class _Deadline:
    """The end of a wait, which a server that stops brings forward."""

    def __init__(self, wait: timedelta) -> None:
        self.text = format_duration(wait // timedelta(milliseconds=1))
        self.timeout = asyncio.timeout(wait.total_seconds())
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True
        self.timeout.reschedule(asyncio.get_running_loop().time())


class EventWaits:
    """The calls that wait for their events."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._deadlines: set[_Deadline] = set()
        self._known = _Known(0.0, {})

    def stop(self) -> None:
        """End all waits now, because the server stops; their events are durable."""
        for deadline in self._deadlines:
            deadline.stop()

    async def until_visible(
        self,
        engine: Engine,
        events: Sequence[ServiceEvent],
        results: Sequence[PublishResult],
        wait: timedelta,
    ) -> list[PublishResult]:
        """Wait for events that are durable; return their results with what became of them.

        A store that does not answer does not undo that they are accepted, so it is no error.
        """
        deadline = _Deadline(wait)
        try:
            problems = await self._problems(engine, events, results, deadline)
        except BackendError as error:
            problems = [f"the store cannot tell whether it was handled: {error}"] * len(events)
        return [
            replace(result, position="", visible=not problem, problem=problem)
            for result, problem in zip(results, problems, strict=True)
        ]

    async def _problems(
        self,
        engine: Engine,
        events: Sequence[ServiceEvent],
        results: Sequence[PublishResult],
        deadline: _Deadline,
    ) -> list[str]:
        """Return why each event is not visible at the end of the wait, "" if it is."""
        verdicts: list[_Verdicts] = [{} for _ in events]

        async def ask(group: str, places: Sequence[int], *, wait: bool) -> None:
            asked = [Awaited(events[n].entity_id, results[n].position) for n in places]
            handled = await engine.backends.bus.handled(group, asked, wait=wait)
            for place, verdict in zip(places, handled, strict=True):
                verdicts[place][group] = verdict

        async def ask_all(*, wait: bool) -> None:
            running = await self._running(engine)
            asked: dict[str, list[int]] = {}
            for place, event in enumerate(events):
                for group in self._groups(running, event.event_type):
                    asked.setdefault(group, []).append(place)
            # No worker will run what such an event triggers, so there is nothing to wait for.
            for place in asked.pop(_NO_GROUP, ()):
                verdicts[place] = {_NO_GROUP: None}
            await asyncio.gather(*(ask(*item, wait=wait) for item in asked.items()))

        try:
            async with deadline.timeout:
                self._deadlines.add(deadline)
                await ask_all(wait=True)
        except TimeoutError:
            await ask_all(wait=False)
        finally:
            self._deadlines.discard(deadline)
        for event, result, verdict in zip(events, results, verdicts, strict=True):
            if result.duplicate and any(verdict.values()):
                own = await _failed_on(engine, event)
                verdict |= {group: failed and failed & own for group, failed in verdict.items()}
        problems: dict[tuple[object, ...], str] = {}
        found: list[str] = []
        for event, verdict in zip(events, verdicts, strict=True):
            partition = partition_of(event.entity_id, engine.backends.bus.partitions)
            case = (event.event_type, partition, *verdict.items())
            if case not in problems:
                reasons = _Reasons(engine, event.event_type, partition, deadline)
                problems[case] = await reasons.problem(verdict)
            found.append(problems[case])
        return found

    def _groups(self, running: EventTypes, event_type: str) -> Sequence[str]:
        """Return the consumer groups whose workers run what an event triggers.

        That is the group of this store if it has no workers, and none if nothing is triggered. A
        store without declarations, such as that of a command, asks the workers alone.
        """
        groups = [group for group, types in running.items() if event_type in types]
        registry = self._runtime.registry
        is_known = bool(registry.features) or any(running.values())
        if groups or (is_known and event_type not in registry.event_types):
            return groups
        self._known = _Known(0.0, {})  # a worker that starts now counts at once
        own = self._runtime.settings.worker.consumer_group
        return [_NO_GROUP] if running[own] else [own]

    async def _running(self, engine: Engine) -> EventTypes:
        if time.monotonic() >= self._known.until:
            groups = {
                *await engine.backends.groups.waiting(0),
                self._runtime.settings.worker.consumer_group,
            }
            running = {group: await event_types(engine, group) for group in groups}
            self._known = _Known(time.monotonic() + _WORKERS_SECONDS, running)
        return self._known.running


async def event_types(engine: Engine, group: str) -> frozenset[str]:
    """Return the event types that trigger features of the live workers of a group."""
    workers = await engine.backends.groups.declared(group)
    return frozenset(cause_of(text) for texts in workers.values() for text in texts)


async def _failed_on(engine: Engine, event: ServiceEvent) -> frozenset[str]:
    """Return the series with a dead letter of an event, also of one that was redriven.

    A duplicate has no position, so the bus tells of all events of its entity.
    """
    query = DeadLetterQuery(
        event_type=event.event_type,
        entity_id=event.entity_id,
        newest_first=True,
        limit=MOST_LETTERS,
    )
    letters = await engine.backends.dead_letters.letters(query)
    return frozenset(
        letter.feature for letter in letters if original_id(letter.event.event_id) == event.event_id
    )


class _Reasons(NamedTuple):
    """Finds out why events of one type and partition are not visible."""

    engine: Engine
    event_type: str
    partition: int
    deadline: _Deadline

    async def problem(self, verdicts: _Verdicts) -> str:
        """Return why such an event is not visible, "" if it is."""
        failed = {series for verdict in verdicts.values() for series in verdict or ()}
        if failed:
            return self._failure(sorted(map(self.engine.catalog.name_of, failed)))
        for group, verdict in verdicts.items():
            if verdict is None:
                return await self._waiting(group)
        return ""

    async def _waiting(self, group: str) -> str:
        if self.deadline.is_stopped:
            return "the server is stopping; workers will handle the event, and reads show it then"
        if group == _NO_GROUP:
            return (
                f"no running worker has a feature that {self.event_type!r} triggers; restart the "
                "workers with the features file of this store"
            )
        groups = self.engine.backends.groups
        if not await groups.declared(group):
            return (
                f"no worker is running in the consumer group {group!r}; start one with "
                "`headwater worker`, or call `store.drain()` in a script"
            )
        text, count = self.deadline.text, (await groups.waiting(self.partition)).get(group, 0)
        if count > 1:
            return f"not handled within {text}: {count} events of its partition wait, with it"
        return (
            f"not handled within {text}: its handlers run, or are retried; wait longer, or read "
            "the log of the workers"
        )

    @staticmethod
    def _failure(names: Sequence[str]) -> str:
        """Name the features, except to callers who may not read all of them."""
        if limited_caller() is not None:
            return "a feature could not handle it; an operator finds it among the dead letters"
        features = ", ".join(names)
        return f"{features} could not handle it; see `headwater dlq list` for the error"


def checked_wait(wait: Duration) -> timedelta:
    """Return how long to wait; raise InvalidInputError if that is too long, or in a handler."""
    if current_scope().transaction is not None:
        raise InvalidInputError(
            "a handler cannot wait for an event: events of its partition run after it; publish "
            "without wait="
        )
    span = to_timedelta(wait)
    if span > LONGEST_WAIT:
        raise InvalidInputError(
            f"wait is {wait}, longer than the maximum of "
            f"{LONGEST_WAIT.total_seconds():g}s; wait less, and read again later"
        )
    return span
