"""Running an event that may have killed its worker."""

from __future__ import annotations

from headwater.core.logging import log
from headwater.declarations.run_set import RunSet
from headwater.engine.engine import Engine
from headwater.engine.worker.batch import give_up, run_batch, voiding
from headwater.engine.worker.lanes import Lane
from headwater.ports import Batch, Outcome


async def run_quarantined(engine: Engine, run_set: RunSet, lane: Lane, batch: Batch) -> Outcome:
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
