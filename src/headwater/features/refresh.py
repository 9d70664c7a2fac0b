"""Running the tick of a scheduled feature: SQL for all entities, code page by page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from prometheus_client import Gauge

from headwater.core.batching import batched
from headwater.core.clock import from_micros
from headwater.core.concurrency import run_concurrently
from headwater.core.deadlines import Slot
from headwater.core.logging import log
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    DeclarationError,
    HeadwaterError,
    InvalidInputError,
    QueryError,
)
from headwater.features import schedule as ticks
from headwater.features.batch_state import BatchState, HandlerTransaction, StagedChanges
from headwater.features.call_scope import CallScope
from headwater.features.cells import is_same_value
from headwater.features.derivation_cache import DerivationCache
from headwater.features.query_rows import query_columns, query_values
from headwater.features.read_tracking import Reads
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.features.services import Services
from headwater.features.user_calls import FailureTexts, own_error
from headwater.features.value_freshness import derivation_of
from headwater.model.values import Cell, ServiceEvent
from headwater.ports import Change, Delivery, Failure, Handled, Lease, Point

DELAY = Gauge(
    "headwater_refresh_delay_seconds",
    "Time from the last due time of a scheduled feature to the start of its run.",
    ["feature"],
)

_PAGE = 500
_POINTS = 20_000
_MAX_REPORTED_ROWS = 10


class Refreshed(msgspec.Struct, frozen=True):
    """The result of a tick, and the event that continues it if entities are left."""

    handled: Handled
    follow_up: ServiceEvent | None = None


class _BegunRun(NamedTuple):
    """A run that has pages left, and the lease under which it began."""

    epoch: int
    due: datetime


class Refresh:
    """Recomputes scheduled features; after a failure the old value stays until the next tick."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._online = services.backends.online
        self._offline = services.backends.offline
        self._calls = services.feature_calls
        self._clock = services.clock
        self._concurrency = services.settings.worker.concurrency
        self._group = services.settings.worker.consumer_group
        self._running: dict[tuple[str, int], _BegunRun] = {}
        self._checked: set[str] = set()
        self._texts = FailureTexts(private=services.settings.record.is_private)
        self._outcomes = RefreshOutcomes(services.backends.notes, services.clock)
        self._derivations = DerivationCache(services.backends, services.registry)
        self.handle = services.interceptors.call("refresh", self._handle)

    async def _handle(self, state: BatchState, delivery: Delivery, lease: Lease) -> Refreshed:
        """Run a tick, or the next page of one."""
        began = time.perf_counter()
        tick, partition = ticks.due_of(delivery.event), lease.partition
        feature = self._registry.features.get(tick.feature)
        updated, failure, after = 0, "", None
        skipped = self._overrun(tick, lease) or tick.group not in ("", self._group)
        if feature is None or not feature.refresh:
            log.info("tick of an unscheduled feature", feature=tick.feature)
        elif not skipped:
            updated, failure, after = await self._run(state, feature, tick, partition, delivery)
        handled = Handled(
            delivery.event,
            time.perf_counter() - began,
            [tick.feature] if updated else [],
            [Failure(tick.feature, failure, "", 1, self._clock.now())] if failure else [],
            skipped=skipped,
        )
        if skipped:
            return Refreshed(handled)
        if after is None:
            self._running.pop((tick.feature, partition), None)
            return Refreshed(handled)
        self._running[tick.feature, partition] = _BegunRun(lease.epoch, tick.due)
        rest = msgspec.structs.replace(tick, after=after, group=self._group)
        return Refreshed(handled, ticks.event_of(rest, self._clock.now()))

    async def _run(
        self,
        state: BatchState,
        feature: FeatureDef,
        tick: ticks.Due,
        partition: int,
        delivery: Delivery,
    ) -> tuple[int, str, str | None]:
        """Run a feature; return the updated entities, the failure, and where to continue."""
        if not tick.after:
            DELAY.labels(tick.feature).set((self._clock.now() - tick.due).total_seconds())
        updated, failure, after, began = 0, "", None, self._clock.now()
        try:
            if feature.sql is None:
                updated, failure, after = await self._run_code(
                    state, feature, tick, partition, delivery
                )
            else:
                updated, failure = await self._run_sql(feature, delivery.event.event_id)
        except BackendError:
            raise  # the batch runs again, as for any event
        except HeadwaterError as error:
            hidden = self._texts.is_hidden(error)
            failure = type(error).__name__ if hidden else str(error)
            log.error("refresh failed", feature=feature.name, error=failure)
        if failure or after is None:
            await self._outcomes.write(feature, tick.due, failure, began)
        return updated, failure, after

    def _overrun(self, tick: ticks.Due, lease: Lease) -> bool:
        """Return whether an earlier run still has pages of this partition left."""
        running = self._running.get((tick.feature, lease.partition))
        # A run that began under another lease may have ended in another worker.
        return (
            not tick.after
            and running is not None
            and running.epoch == lease.epoch
            and running.due < tick.due
        )

    async def _run_code(
        self,
        state: BatchState,
        feature: FeatureDef,
        tick: ticks.Due,
        partition: int,
        delivery: Delivery,
    ) -> tuple[int, str, str | None]:
        """Compute the feature for the next page of this partition's entities."""
        entity_ids = await self._online.entity_ids(
            feature.entity.name,
            after=tick.after,
            limit=_PAGE,
            partition=partition,
            having=None if feature.materialize else feature.series,
        )
        drops = await self._derivations.drops()
        done: list[str] = []
        failed: list[str] = []

        async def run(some: Iterator[str]) -> None:
            with self._calls.deadline.slot() as slot:
                for entity_id in some:
                    try:
                        await self._run_one(state, feature, entity_id, delivery, slot, drops)
                        done.append(entity_id)
                    except BackendUnavailableError:
                        raise  # the batch runs again, as for any event
                    except HeadwaterError as error:
                        own = own_error(feature.name, error)
                        failed.append(self._report(feature, entity_id, own))

        await run_concurrently(entity_ids, run, self._concurrency)
        after = entity_ids[-1] if len(entity_ids) == _PAGE else None
        if not failed:
            return len(done), "", after
        failure = f"failed for {len(failed)} of {len(entity_ids)} entities: {failed[0]}"
        return len(done), failure, after

    async def _run_one(
        self,
        state: BatchState,
        feature: FeatureDef,
        entity_id: str,
        delivery: Delivery,
        slot: Slot,
        drops: int,
    ) -> None:
        now = self._clock.micros()
        while True:
            transaction, reads = HandlerTransaction(state, now, now, delivery), Reads()
            try:
                scope = CallScope(transaction, reads)
                value = await self._calls.call(slot, scope, feature, entity_id)
                await transaction.set(feature, entity_id, value)
            finally:
                changes = transaction.close()
            if changes is not None:
                derivation = derivation_of(feature, reads, from_micros(now))
                own = ("feature", feature.entity.name)
                if any(part[:2] != own or part[3] != entity_id for part in derivation.provenance):
                    # The function has read more than features of its own entity.
                    changes, written_at = _derived(changes, feature, entity_id)
                    await self._derivations.put(feature, entity_id, written_at, derivation, drops)
                transaction.apply(changes, feature)
                return

    async def _run_sql(self, feature: FeatureDef, cause: str) -> tuple[int, str]:
        """Run the query once and write every entity it returns, or only those already online.

        A row that cannot be stored is logged and does not affect the others.
        """
        rows = await self._offline.query(feature.sql or "", self._registry.sources)
        now = self._clock.now()
        # Encoding many rows takes long and would block the event loop.
        queried = await asyncio.to_thread(query_values, feature, rows, now, cause)
        changes: Sequence[Change] = queried.changes
        if not feature.materialize or "timestamp" in rows.columns:
            changes = await self._unwritten(feature, changes)
        erased = 0
        for page in batched(changes, _PAGE):
            erased += await self._online.put(page)
        for entity_id, error in queried.refused[:_MAX_REPORTED_ROWS]:
            self._report(feature, entity_id, error)
        refused, total = len(queried.refused), len(queried.changes) + len(queried.refused)
        return len(changes) - erased, f"failed for {refused} of {total} rows" if refused else ""

    async def _unwritten(self, feature: FeatureDef, changes: Sequence[Change]) -> list[Change]:
        """Return the changes to write: of known entities if need be, and not known already."""
        entity = feature.entity.name
        by_state: dict[str, list[Change]] = {"new": [], "older": [], "same": []}
        for page in batched(changes, _PAGE):
            states = await self._online.get(entity, [change.entity_id for change in page])
            for change, cells in zip(page, states, strict=True):
                if cells or feature.materialize:
                    state = _compared(feature, change.cell, cells.get(change.feature))
                    by_state[state].append(change)
        if feature.freshness == "caught_up":
            # History has these values; online, it counts that they are still current.
            for page in batched(by_state["same"], _PAGE):
                values = {written.entity_id: {written.feature: written.cell} for written in page}
                await self._online.restore(entity, values)
        for older in batched(by_state["older"], _POINTS):
            points = [Point(change.entity_id, from_micros(change.cell.as_of)) for change in older]
            past_rows = await self._offline.as_of([older[0].feature], points)
            by_state["new"] += [
                change  # history does not have it
                for change, point, (past,) in zip(older, points, past_rows, strict=True)
                if past is None
                or past.as_of != point.at
                or not is_same_value(feature, change.cell.value, past.value)
            ]
        return by_state["new"]

    def _report(self, feature: FeatureDef, entity_id: str, error: Exception) -> str:
        problem = self._texts.message(error)
        log.warning("refresh failed", feature=feature.name, entity_id=entity_id, error=problem)
        return problem

    async def check_queries(self) -> None:
        """Prepare the queries of all features, each once.

        Raise DeclarationError for a query that can never run. One that cannot run at present, for
        example because a source is missing, is logged.
        """
        for feature in self._registry.scheduled():
            if feature.sql is None or feature.name in self._checked:
                continue
            try:
                columns = await self._offline.prepare(feature.sql, self._registry.sources)
                query_columns(feature, columns)
            except QueryError as error:
                problem = f"feature {feature.name!r}: {error}"
                raise DeclarationError(problem, feature.location) from error
            except BackendUnavailableError as error:
                # Events do not need the server of history: they must not wait for it here.
                log.warning("queries not checked", error=str(error))
                return
            except (InvalidInputError, BackendError) as error:
                log.error("query cannot be run", feature=feature.name, error=str(error))
            self._checked.add(feature.name)


def _derived(
    changes: StagedChanges, feature: FeatureDef, entity_id: str
) -> tuple[StagedChanges, int]:
    """Return the changes with a derived value of the feature, and when it was written."""
    key = next(
        key
        for key, change in changes.items()
        if (change.feature, change.entity_id) == (feature.series, entity_id)
    )
    cell = msgspec.structs.replace(changes[key].cell, derived=True)
    marked = msgspec.structs.replace(changes[key], cell=cell)
    return {**changes, key: marked}, cell.written_at


def _compared(
    feature: FeatureDef, cell: Cell, stored: Cell | None
) -> Literal["new", "older", "same"]:
    """Return whether a value is to be written, of an earlier moment, or stored already."""
    if stored is None or cell.as_of > stored.as_of:
        return "new"
    if cell.as_of < stored.as_of:
        return "older"
    # With a ttl, each run makes the value valid for longer, also the first one without it.
    has_ttl = feature.ttl is not None or stored.expires_at is not None
    is_same = not has_ttl and is_same_value(feature, cell.value, stored.value)
    return "same" if is_same else "new"
