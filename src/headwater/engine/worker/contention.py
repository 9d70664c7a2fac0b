"""Contention: lanes whose batches write to the same entities take turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from prometheus_client import Gauge

from headwater.core.logging import Outage, log
from headwater.engine.engine import Engine
from headwater.engine.worker.lanes import Lane
from headwater.model.values import EntityKey
from headwater.ports import Batch, BatchOutcome, Cached

CONTENDED = "contended:"
"""The beginning of the key of the note about entities that are fought over."""
CONTENDED_ENTITIES = Gauge(
    "headwater_contended_entities",
    "Instances of an entity over which batches of this process conflicted in the last seconds, "
    "so that the handlers that write to them take turns.",
    ["entity"],
)

_TURN_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
_REMEMBERED_SECONDS = 10.0
_YIELDS = 3
_MOST = 0.5
_LOSSES_UNTIL_SHORTER = 8
_CONFLICTS_BETWEEN_WARNINGS = 10
_NOTE_SECONDS = 5.0
_NOTED = timedelta(minutes=10)
_MOST_NOTED = 5


@dataclass(slots=True)
class Fight:
    """An entity over which batches conflicted lately."""

    until: float
    """When it is forgotten, unless there is another conflict or a lane waits for its turn."""
    conflicts: int = 0


class ContendedEntity(msgspec.Struct, frozen=True):
    """An entity that is fought over; its id is empty in stores that keep no content."""

    entity: str
    entity_id: str
    conflicts: int
    at: datetime


_decode = msgspec.json.Decoder(list[ContendedEntity]).decode


class Contention:
    """The entities over which batches conflicted lately, and the queue of lanes that write to them.

    Of two batches that write to one entity the first commit counts, and the other batch runs again.
    So the lane that is ahead would stay ahead, and its rivals would never commit. Therefore a lane
    that writes to such an entity runs only when no other is before it in the queue, and for about a
    quarter of a second.

    Other processes have queues of their own. A process that loses to another one makes its batches
    shorter until it wins, and one that wins pauses after each round of its queue, as long as a turn
    takes: then the other one is ahead for a round.
    """

    def __init__(self) -> None:
        self._fights: dict[EntityKey, Fight] = {}
        self._queue: list[Lane] = []
        self._measured: set[str] = set()
        self._size = 0
        """The maximum number of events of a turn."""
        self._turns = 0
        """How many turns of this round have ended with a commit."""
        self._losses = 0
        """How many turns in a row have ended with a conflict, which only others can have caused."""
        self._yields = 0
        """After how many more rounds to pause, because another process was seen."""

    def conflicts(self) -> Mapping[EntityKey, int]:
        """Return the conflicts over each entity that is fought over, and set the gauge."""
        self._forget(time.monotonic())
        counts = Counter(entity for entity, _ in self._fights)
        self._measured.update(counts)
        for entity in self._measured:
            CONTENDED_ENTITIES.labels(entity).set(counts[entity])
        return {key: fight.conflicts for key, fight in self._fights.items()}

    def retain(self, held: Collection[Lane]) -> None:
        """Remove the lanes from the queue that are not held any more."""
        if self._queue:
            self._queue = [lane for lane in self._queue if lane in held]

    def may_read(self, lane: Lane) -> bool:
        """Return whether a lane may read events: it has its turn, or has not asked for one."""
        return lane not in self._queue or self._is_first(lane)

    def takes_turn(self, lane: Lane) -> bool:
        """Return whether a lane may run the events that it has read; if not, it is in the queue."""
        if not lane.contends or not (lane.has_conflicted or self._is_mostly_contending(lane)):
            return True
        if lane not in self._queue:
            self._queue.append(lane)
        return self._is_first(lane)

    def _is_mostly_contending(self, lane: Lane) -> bool:
        """Return whether most events would run again after a conflict."""
        return bool(lane.contends) and lane.contending_share >= _MOST

    def _is_first(self, lane: Lane) -> bool:
        earlier = self._queue[: self._queue.index(lane)]
        return all(lane.contends.keys().isdisjoint(other.contends) for other in earlier)

    def skip(self, idle: Iterable[Lane], batches: Sequence[Batch]) -> None:
        """Remove the lanes from the queue that have no event to run."""
        if self._queue:
            partitions = {batch.lease.partition for batch in batches}
            for lane in idle:
                if lane.lease.partition not in partitions:
                    self.end_turn(lane)

    def end_turn(self, lane: Lane) -> None:
        """Let the next lane in the queue run."""
        if lane in self._queue:
            self._queue.remove(lane)

    def size(self, lane: Lane) -> int:
        """Return the maximum number of events of a lane's next batch."""
        return self._size if self._is_mostly_contending(lane) else lane.batch_size

    def committed(self, lane: Lane, outcome: BatchOutcome, seconds: float) -> float:
        """Note a commit, and how long the batch took; return the pause that has to follow."""
        if not self._fights:
            return 0.0
        self._note_writes(lane, outcome)
        lane.has_conflicted = False
        if lane not in self._queue:
            return 0.0
        events = len(outcome.batch.deliveries)
        self._size = max(1, min(2 * events, int(events * _TURN_SECONDS / seconds)))
        if self._losses:
            self._losses, self._yields = 0, _YIELDS
        self._turns += 1
        if not self._yields or self._turns < len(self._queue):
            return 0.0
        self._turns = 0
        self._yields -= 1
        return min(seconds, _LONGEST_PAUSE_SECONDS)

    def conflicted(self, lane: Lane, outcome: BatchOutcome, changed: Collection[EntityKey]) -> None:
        """Note a conflict: the next batch of the lane is shorter and waits for its turn."""
        now, half = time.monotonic(), max(1, len(outcome.batch.deliveries) // 2)
        if lane in self._queue:
            self._losses += 1
            if not self._yields or self._losses % _LOSSES_UNTIL_SHORTER == 0:
                self._size = half
        elif not self._fights or half < self._size:
            self._size = half
        for key in changed:
            fight = self._fights.setdefault(key, Fight(now))
            fight.until = now + _REMEMBERED_SECONDS
            fight.conflicts += 1
            if fight.conflicts % _CONFLICTS_BETWEEN_WARNINGS == 0:
                log.warning(
                    "batches keep conflicting over an entity",
                    entity=key[0],
                    conflicts=fight.conflicts,
                    partition=lane.lease.partition,
                )
        self._note_writes(lane, outcome)
        lane.has_conflicted = True

    def _note_writes(self, lane: Lane, outcome: BatchOutcome) -> None:
        """Note which of the entities a lane writes to; forget fights that are over."""
        now = time.monotonic()
        for key in self._fights.keys() & outcome.states.keys():
            lane.contends[key] = now + _REMEMBERED_SECONDS
            if any(key in other.contends for other in self._queue if other is not lane):
                self._fights[key].until = now + _REMEMBERED_SECONDS
        self._forget(now)
        for key in [key for key, until in lane.contends.items() if until <= now]:
            del lane.contends[key]
        for key in lane.contends.keys() - self._fights.keys():
            del lane.contends[key]
        causes = {change.cause for change in outcome.changes if change.key in lane.contends}
        lane.contending_share = len(causes) / len(outcome.batch.deliveries)

    def _forget(self, now: float) -> None:
        for key in [key for key, fight in self._fights.items() if fight.until <= now]:
            del self._fights[key]


async def note_contention(engine: Engine, contention: Contention) -> None:
    """Keep in the store, for `doctor`, which entities are fought over, until cancelled."""
    outage = Outage("contention")
    try:
        while True:
            await asyncio.sleep(_NOTE_SECONDS)
            conflicts = contention.conflicts()
            if conflicts:
                with outage.reporting("warning", "contention not noted; retrying", "worker"):
                    await write_contended(engine, conflicts)
    finally:
        CONTENDED_ENTITIES.clear()


async def write_contended(engine: Engine, conflicts: Mapping[EntityKey, int]) -> None:
    """Keep the entities with the most conflicts, except erased ones."""
    ledger, now = engine.backends.erasures.ledger, engine.clock.now()
    is_private = engine.settings.record.is_private
    most = sorted(conflicts, key=lambda key: conflicts[key], reverse=True)
    contended = [
        ContendedEntity(entity, "" if is_private else entity_id, conflicts[entity, entity_id], now)
        for entity, entity_id in most[:_MOST_NOTED]
        if ledger.find(entity, entity_id) is None
    ]
    value = Cached(msgspec.json.encode(contended), engine.clock.micros())
    await engine.backends.notes.put(_key(engine), value, _NOTED)


async def read_contended(engine: Engine) -> list[ContendedEntity]:
    """Return the entities that were fought over in the last minutes."""
    stored = await engine.backends.notes.get(_key(engine))
    return _decode(stored.value) if stored else []


def _key(engine: Engine) -> str:
    return f"{CONTENDED}{engine.settings.worker.consumer_group}"
