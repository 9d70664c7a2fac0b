"""Running one batch: its entities at the same time, each one's events in order, to one outcome."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain

from headwater.compute import dead_letter
from headwater.engine import Engine
from headwater.offload import share
from headwater.ports import Batch, DeadLetter, Delivery, Failure, Handled, Outcome
from headwater.ticks import REFRESH, due_of
from headwater.values import ServiceEvent
from headwater.workspace import Workspace


async def run_batch(engine: Engine, batch: Batch) -> Outcome:
    """Runs the features that a batch's events trigger; nothing is durable yet."""
    workspace = Workspace(engine.backends.online, batch.states)
    partition = batch.lease.partition
    results: dict[int, Handled] = {}
    dead: list[DeadLetter] = []
    follow_ups: list[ServiceEvent] = []
    passed_over = _passed_over(batch)

    async def run(chains: Iterator[list[Delivery]]) -> None:
        with engine.calls.deadline.slot() as slot:
            for delivery in chain.from_iterable(chains):
                if delivery.event.event_type == REFRESH:
                    late = delivery.seq in passed_over
                    results[delivery.seq] = _skipped(delivery) if late else await refresh(delivery)
                    continue
                handled = await engine.compute.handle(workspace, delivery, slot)
                results[delivery.seq] = handled
                if handled.failures:
                    dead.extend(_letters(handled, delivery, partition, engine.clock.now()))

    async def refresh(delivery: Delivery) -> Handled:
        refreshed = await engine.refresh.handle(workspace, delivery, partition)
        if refreshed.follow_up:
            follow_ups.append(refreshed.follow_up)
        return refreshed.handled

    await share(_chains(batch), run, engine.settings.worker.concurrency)
    return Outcome(
        batch=batch,
        versions=workspace.versions,
        states=workspace.written(),
        changes=workspace.changes,
        handled=[results[delivery.seq] for delivery in batch.deliveries],
        dead=dead,
        follow_ups=follow_ups,
    )


def _skipped(delivery: Delivery) -> Handled:
    """The end of a tick that is not run because a later one is."""
    return Handled(delivery.event, 0.0, (), (), skipped=True)


def _passed_over(batch: Batch) -> set[int]:
    """The ticks that missed their time so far that a later one of the feature waits with them."""
    latest: dict[str, int] = {}
    earlier: set[int] = set()
    for delivery in batch.deliveries:
        event = delivery.event
        if event.event_type == REFRESH and not due_of(event).after:
            if event.entity_id in latest:
                earlier.add(latest[event.entity_id])
            latest[event.entity_id] = delivery.seq
    return earlier


def give_up(engine: Engine, batch: Batch, deaths: int) -> Outcome:
    """The outcome for one event that has killed its worker too often."""
    (delivery,) = batch.deliveries
    now = engine.clock.now()
    tick = delivery.event.event_type == REFRESH
    if tick:
        names = [due_of(delivery.event).feature]
    else:
        features = engine.registry.touched_by(delivery.event.event_type, delivery.only)
        names = [feature.name for feature in features]
    problem = f"the worker died {deaths} times while it ran this event"
    failures = [Failure(name, problem, "", deaths, now) for name in names]
    handled = Handled(delivery.event, 0.0, (), failures, triggered=bool(names))
    return Outcome(
        batch=batch,
        versions={},
        states={},
        changes=(),
        handled=[handled],
        # A tick comes again by itself; there is nothing to redrive.
        dead=[] if tick else _letters(handled, delivery, batch.lease.partition, now),
    )


def _chains(batch: Batch) -> list[list[Delivery]]:
    """The batch's events by entity, in order: what must run one after the other."""
    chains: dict[str, list[Delivery]] = {}
    for delivery in batch.deliveries:
        chains.setdefault(delivery.event.entity_id, []).append(delivery)
    return list(chains.values())


def _letters(
    handled: Handled, delivery: Delivery, partition: int, now: datetime
) -> list[DeadLetter]:
    return [dead_letter(delivery, partition, failure, now) for failure in handled.failures]
