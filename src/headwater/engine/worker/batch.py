"""Running one batch: entities concurrently, the events of each entity in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headwater.backends.observed import count_erased
from headwater.core.concurrency import run_concurrently
from headwater.declarations.run_set import RunSet
from headwater.engine.engine import Engine
from headwater.features.batch_state import BatchState, FinishedRuns
from headwater.features.event_handlers import dead_letters
from headwater.features.schedule import REFRESH, due_of
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import INTERNAL, MALFORMED, ServiceEvent
from headwater.ports import Batch, BatchOutcome, Delivery, Failure, Handled, Tombstone

NO_FEATURE = "(none)"
"""The feature of a dead letter whose log entry is not a valid event."""


class RepeatableRuns:
    """Finished runs of a lane's handlers that were not committed, because of a conflict.

    They are noted from the first batch on that had a conflict, or used more than the entities of
    its own events: most lanes have none, and to keep the runs of a batch takes time.
    """

    def __init__(self) -> None:
        self._runs: FinishedRuns = {}
        self._checked = 0
        self._are_noted = False
        self._last: BatchState | None = None

    def begin(self, state: BatchState, checked: int) -> None:
        """Let a new batch repeat them, unless an entity was erased since they ran."""
        self._last = state
        if self._are_noted:
            if checked != self._checked:
                self._runs, self._checked = {}, checked
            state.finished, state.runs = self._runs, []

    def keep(self) -> None:
        """Keep the runs of the last batch, which has to run again."""
        if self._last is not None:
            self._runs = self._last.finished_runs()
            self._last.runs = None  # they refer to each other
            self._last = None
            self._are_noted = True

    def drop(self, batch: Batch) -> None:
        """Forget the runs of a batch that was committed."""
        if self._last is not None:
            self._are_noted = self._are_noted or len(self._last.entities) > len(batch.states)
            self._last.runs = None
            self._last = None
        if self._runs:
            done = {delivery.position for delivery in batch.deliveries}
            self._runs = {key: run for key, run in self._runs.items() if key[0] not in done}


async def run_batch(
    engine: Engine, run_set: RunSet, batch: Batch, runs: RepeatableRuns | None = None
) -> BatchOutcome:
    """Run the features that a batch's events trigger; nothing is durable yet.

    Repeat those of ``runs`` whose entities are unchanged without calling their functions.
    """
    running = _Running(engine, run_set, batch)
    if runs is not None:
        runs.begin(running.state, running.checked)
    chains: dict[str, list[Delivery]] = {}
    for delivery in batch.deliveries:
        chains.setdefault(delivery.event.entity_id, []).append(delivery)
    limit = engine.settings.worker.concurrency
    await run_concurrently(list(chains.values()), running.run, limit)
    return running.outcome()


class _Running:
    """A batch at work: the state that its events see, and their results so far."""

    def __init__(self, engine: Engine, run_set: RunSet, batch: Batch) -> None:
        self._engine = engine
        self._run_set = run_set
        self._batch = batch
        # The revision first: what is learned later makes the commit conflict.
        self._ledger = engine.backends.erasures.ledger
        self.checked = self._ledger.revision
        self.state = BatchState(
            batch.lease.partition, batch.states, engine.backends.online.get_state, self._ledger
        )
        self._results: dict[str, Handled] = {}
        self._dead: list[DeadLetter] = []
        self._follow_ups: list[ServiceEvent] = []
        self._dropped: dict[Tombstone, int] = {}
        self._superseded = _superseded(batch)
        self._group = engine.settings.worker.consumer_group

    async def run(self, chains: Iterator[list[Delivery]]) -> None:
        """Handle chains of events until none is left."""
        handle, state, results = self._engine.handlers.handle, self.state, self._results
        # Neither ours nor skipped: a type that triggers features, as long as nothing is erased.
        usual = {} if self.checked else self._run_set.by_event_type
        with self._engine.feature_calls.deadline.slot() as slot:
            for delivery in chain.from_iterable(chains):
                event_type, only = delivery.event.event_type, delivery.only
                features = None if delivery.group else usual.get(event_type)
                if features is None and event_type.startswith(INTERNAL):
                    handled = await self._run_internal(delivery)
                elif features is None and self._is_skipped(delivery):
                    handled = _skipped(delivery)
                else:
                    features = features or self._run_set.triggered_by(event_type, only)
                    handled = await handle(state, delivery, features, slot)
                    if handled.failures:
                        self._dead_letter(handled, delivery)
                results[delivery.position] = handled

    def _is_skipped(self, delivery: Delivery) -> bool:
        return (bool(delivery.group) and not self._runs(delivery)) or self._is_erased(delivery)

    def _runs(self, delivery: Delivery) -> bool:
        """Return whether this group runs a redriven event.

        Until a partition has joined, the group of a backfill runs those of its version.
        """
        if delivery.group != self._group:
            return False
        is_run = self._run_set.triggered_by(delivery.event.event_type, delivery.only)
        return bool(is_run) or delivery.only not in self._engine.registry.built_series()

    def _is_erased(self, delivery: Delivery) -> bool:
        """Return whether an event has no effect any more, and count it then."""
        if not self.checked:
            return False
        tombstone = voiding(self._engine, delivery)
        if tombstone is not None:
            self._dropped[tombstone] = self._dropped.get(tombstone, 0) + 1
        return tombstone is not None

    async def _run_internal(self, delivery: Delivery) -> Handled:
        if delivery.event.event_type == MALFORMED:
            # A log entry that is not a valid event becomes a dead letter.
            problem, now = str(delivery.event.payload["problem"]), self._engine.clock.now()
            failure = Failure(NO_FEATURE, problem, "", 0, now)
            handled = Handled(delivery.event, 0.0, (), [failure])
            self._dead_letter(handled, delivery)
            return handled
        if delivery.position in self._superseded:
            return _skipped(delivery)
        lease = self._batch.lease
        refreshed = await self._engine.refresh.handle(self.state, delivery, lease)
        if refreshed.follow_up:
            self._follow_ups.append(refreshed.follow_up)
        return refreshed.handled

    def _dead_letter(self, handled: Handled, delivery: Delivery) -> None:
        now, partition = self._engine.clock.now(), self._batch.lease.partition
        self._dead += dead_letters(delivery, partition, handled.failures, now)

    def outcome(self) -> BatchOutcome:
        """Return the outcome, in the order of the batch's events."""
        count_erased("event", self._dropped)
        count_erased("value", self.state.dropped)
        return BatchOutcome(
            batch=self._batch,
            versions=self.state.versions(),
            states=self.state.written(),
            changes=self.state.changes,
            handled=[self._results[delivery.position] for delivery in self._batch.deliveries],
            dead=self._dead,
            follow_ups=self._follow_ups,
            documents=self.state.documents,
            checked=self.checked,
        )


def _skipped(delivery: Delivery) -> Handled:
    """Return the result of an event that is not run.

    That is a tick that a later one replaces, another group's redrive, or an erased entity's event.
    """
    return Handled(delivery.event, 0.0, (), (), skipped=True)


def voiding(engine: Engine, delivery: Delivery) -> Tombstone | None:
    """Return the erasure because of which an event has no effect any more, or None."""
    ledger, subjects = engine.backends.erasures.ledger, engine.registry.subjects
    return ledger.voiding(delivery.event, subjects, delivery.position)


def _superseded(batch: Batch) -> set[str]:
    """Return the positions of ticks that are followed by a later tick of the same feature."""
    latest: dict[str, str] = {}
    earlier: set[str] = set()
    for delivery in batch.deliveries:
        event = delivery.event
        if event.event_type == REFRESH and not due_of(event).after:
            if event.entity_id in latest:
                earlier.add(latest[event.entity_id])
            latest[event.entity_id] = delivery.position
    return earlier


def give_up(engine: Engine, run_set: RunSet, batch: Batch, deaths: int) -> BatchOutcome:
    """Return the outcome of an event that has killed its worker too often."""
    (delivery,) = batch.deliveries
    now, checked = engine.clock.now(), engine.backends.erasures.ledger.revision
    tick = delivery.event.event_type == REFRESH
    if tick:
        names = [due_of(delivery.event).feature]
    else:
        features = run_set.triggered_by(delivery.event.event_type, delivery.only)
        names = [feature.series for feature in features]
    problem = (
        f"the worker died {deaths} times while it ran this event; its log says how: killed, "
        "crashed, stopped before it was done, stuck for longer than worker.lease_ttl, or ended "
        "because an async handler blocked the event loop for longer than worker.handler_timeout"
    )
    failures = [Failure(name, problem, "", deaths, now) for name in names]
    handled = Handled(delivery.event, 0.0, (), failures, triggered=bool(names))
    return BatchOutcome(
        batch=batch,
        versions={},
        states={},
        changes=(),
        handled=[handled],
        # The schedule publishes the next tick; there is nothing to redrive.
        dead=[] if tick else dead_letters(delivery, batch.lease.partition, failures, now),
        checked=checked,
    )
