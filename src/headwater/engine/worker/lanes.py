"""The partitions that a worker holds, and the quarantine of those whose worker died."""

from __future__ import annotations

import asyncio
import time

from headwater.core.logging import log
from headwater.declarations.run_set import RunSet
from headwater.engine.engine import Engine
from headwater.engine.worker.batch import RepeatableRuns, give_up, run_batch, voiding
from headwater.model.values import EntityKey
from headwater.ports import Batch, BatchOutcome, Lease

_TURN_SECONDS = 0.5


class Lane:
    """A partition that this worker holds; it runs one batch at a time."""

    def __init__(self, lease: Lease, batch_size: int, *, is_joined: bool = True) -> None:
        self.lease = lease
        self.is_joined = is_joined
        """Whether all versions of features that run here have joined; see `joining`."""
        self.task: asyncio.Task[None] | None = None
        self.quarantined = batch_size if lease.suspect else 0
        """How many of the next events run one at a time, with nothing else in this process.

        The previous owner died without an outcome, and one of the events that it may have been
        running may be the cause.
        """
        self.is_waiting = False
        """Whether a quarantined event is known to wait."""
        self.counted_position = ""
        """The quarantined event whose attempt was counted last."""
        self.attempts = 0
        self.batch_size = batch_size
        self.runs = RepeatableRuns()
        self.contends: dict[EntityKey, float] = {}
        """Until when it counts as a writer of entities that others write to; see `contention`."""
        self.contending_share = 0.0
        """The share of its last batch's events that wrote to them."""
        self.has_conflicted = False
        """Whether its last batch has to run again because of a conflict."""


class QuarantineScheduler:
    """Divides time between quarantined events and the other lanes, half to each."""

    def __init__(self) -> None:
        self._quarantine_since: float | None = None
        self._others_until = 0.0

    def is_others_turn(self) -> bool:
        return time.monotonic() < self._others_until

    def hold_others(self) -> None:
        """Let the other lanes start no batch until a quarantined event has its outcome."""
        self._others_until = 0.0

    def begin_quarantine(self) -> None:
        """Start the time for quarantined events, unless it has started."""
        self.hold_others()
        if self._quarantine_since is None:
            self._quarantine_since = time.monotonic()

    def event_ended(self) -> None:
        """Give the other lanes as much time as they have waited, if that is long enough."""
        now = time.monotonic()
        since = now if self._quarantine_since is None else self._quarantine_since
        if now - since >= _TURN_SECONDS:
            self._quarantine_since, self._others_until = None, now + (now - since)

    def end_quarantine(self) -> None:
        """End the time for quarantined events: none is left."""
        self._quarantine_since = None


async def run_quarantined(
    engine: Engine, run_set: RunSet, lane: Lane, batch: Batch
) -> BatchOutcome:
    """Run an event that may have killed its worker, counting it once for each worker."""
    (delivery,) = batch.deliveries
    if lane.counted_position != delivery.position:
        lane.attempts = await engine.backends.bus.attempt(lane.lease, delivery.position)
        lane.counted_position = delivery.position
    if not lane.attempts:
        lane.quarantined = 1  # the previous owner is alive after all: this is the last one
    is_given_up = lane.attempts > engine.settings.worker.max_deliveries
    if is_given_up and voiding(engine, delivery) is None:
        log.error(
            "event given up",
            event_id=delivery.event.event_id,
            partition=lane.lease.partition,
            deaths=lane.attempts - 1,
        )
        return give_up(engine, run_set, batch, lane.attempts - 1)
    return await run_batch(engine, run_set, batch)
