"""Running the tick of a scheduled feature: SQL for all entities, code page by page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec

from headwater.core.batching import batched
from headwater.core.clock import to_micros
from headwater.core.concurrency import run_concurrently
from headwater.core.deadlines import Slot
from headwater.core.logging import log
from headwater.core.values import Cell, ServiceEvent
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    DeclarationError,
    FeatureFailedError,
    FeatureValueError,
    FunctionRaisedError,
    HeadwaterError,
    InvalidInputError,
    QueryError,
)
from headwater.features import schedule as ticks
from headwater.features.batch_state import BatchState, HandlerTransaction
from headwater.features.cells import make_cell, make_change
from headwater.features.failure_texts import FailureTexts
from headwater.features.frame import Frame
from headwater.features.services import Services
from headwater.ports import (
    Change,
    Delivery,
    Failure,
    Handled,
    Lease,
    Rows,
)

_PAGE = 500
_MAX_REPORTED_ROWS = 10


class Refreshed(msgspec.Struct, frozen=True):
    """The result of a tick, and the event that continues it if entities are left."""

    handled: Handled
    follow_up: ServiceEvent | None = None


class _Run(NamedTuple):
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
        self._running: dict[tuple[str, int], _Run] = {}
        self._texts = FailureTexts(private=not services.settings.record.include_content)

    async def handle(self, state: BatchState, delivery: Delivery, lease: Lease) -> Refreshed:
        """Run a tick, or the next page of one."""
        began = time.perf_counter()
        tick, partition = ticks.due_of(delivery.event), lease.partition
        feature = self._registry.features.get(tick.feature)
        updated, failure, after = 0, "", None
        skipped = self._overrun(tick, lease) or tick.group not in ("", self._group)
        if feature is None or not feature.refresh:
            log.info("tick of an unscheduled feature", feature=tick.feature)
        elif not skipped:
            try:
                if feature.sql is None:
                    updated, failure, after = await self._run_code(
                        state, feature, tick, partition, delivery.event.event_id
                    )
                else:
                    updated, failure = await self._run_sql(feature, delivery.event.event_id)
            except BackendError:
                raise  # the batch runs again, as for any event
            except HeadwaterError as error:
                hidden = self._texts.is_hidden(error)
                failure = type(error).__name__ if hidden else str(error)
                log.error("refresh failed", feature=feature.name, error=failure)
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
        self._running[tick.feature, partition] = _Run(lease.epoch, tick.due)
        rest = msgspec.structs.replace(tick, after=after, group=self._group)
        return Refreshed(handled, ticks.event_of(rest, self._clock.now()))

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
        cause: str,
    ) -> tuple[int, str, str | None]:
        """Compute the feature for the next page of this partition's entities."""
        entity_ids = await self._online.entity_ids(
            feature.entity.name,
            after=tick.after,
            limit=_PAGE,
            partition=partition,
            having=None if feature.materialize else feature.name,
        )
        done: list[str] = []
        failed: list[str] = []

        async def run(some: Iterator[str]) -> None:
            with self._calls.deadline.slot() as slot:
                for entity_id in some:
                    try:
                        await self._run_one(state, feature, entity_id, cause, slot)
                        done.append(entity_id)
                    except BackendUnavailableError:
                        raise  # the batch runs again, as for any event
                    except FunctionRaisedError as error:
                        failed.append(entity_id)
                        self._report(feature, entity_id, error.raised)
                    except HeadwaterError as error:
                        failed.append(entity_id)
                        self._report(feature, entity_id, error)

        await run_concurrently(entity_ids, run, self._concurrency)
        after = entity_ids[-1] if len(entity_ids) == _PAGE else None
        failure = f"failed for {len(failed)} of {len(entity_ids)} entities" if failed else ""
        return len(done), failure, after

    async def _run_one(
        self, state: BatchState, feature: FeatureDef, entity_id: str, cause: str, slot: Slot
    ) -> None:
        now = self._clock.micros()
        while True:
            transaction = HandlerTransaction(state, now, now, cause)
            try:
                value = await self._calls.call(slot, Frame(transaction), feature, entity_id)
                await transaction.set(feature, entity_id, value)
            finally:
                changes = transaction.close()
            if changes is not None:
                transaction.apply(changes)
                return

    async def _run_sql(self, feature: FeatureDef, cause: str) -> tuple[int, str]:
        """Run the query once and write every entity it returns, or only those already online.

        A row that cannot be stored is logged and does not affect the others.
        """
        rows = await self._offline.query(feature.sql or "", self._registry.sources)
        now = self._clock.now()
        # Encoding many rows takes long and would block the event loop.
        changes, refused = await asyncio.to_thread(_changes, feature, rows, now, cause)
        count = 0
        for page in batched(changes, _PAGE):
            written = page if feature.materialize else await self._already_online(page)
            await self._online.put(written)
            count += len(written)
        for entity_id, error in refused[:_MAX_REPORTED_ROWS]:
            self._report(feature, entity_id, error)
        total = len(changes) + len(refused)
        return count, f"failed for {len(refused)} of {total} rows" if refused else ""

    def _report(self, feature: FeatureDef, entity_id: str, error: Exception) -> None:
        problem = self._texts.message(error)
        log.warning("refresh failed", feature=feature.name, entity_id=entity_id, error=problem)

    async def check_queries(self) -> None:
        """Prepare the queries of all features.

        Raise DeclarationError for a query that can never run. One that cannot run at present, for
        example because a source is missing, is logged.
        """
        for feature in self._registry.scheduled():
            if feature.sql is None:
                continue
            try:
                columns = await self._offline.prepare(feature.sql, self._registry.sources)
                _columns(feature, columns)
            except QueryError as error:
                problem = f"feature {feature.name!r}: {error}"
                raise DeclarationError(problem, feature.location) from error
            except BackendUnavailableError as error:
                # Events do not need the server of history: they must not wait for it here.
                log.warning("queries not checked", error=str(error))
                return
            except (InvalidInputError, BackendError) as error:
                log.error("query cannot be run", feature=feature.name, error=str(error))

    async def _already_online(self, changes: Sequence[Change]) -> list[Change]:
        cells = await self._online.get(changes[0].entity, [c.entity_id for c in changes])
        return [change for change, values in zip(changes, cells, strict=True) if values]


def _changes(
    feature: FeatureDef, rows: Rows, now: datetime, cause: str
) -> tuple[list[Change], list[tuple[str, HeadwaterError]]]:
    """Return the changes of the query's rows, and the rows that cannot be stored."""
    id_at, value_at, time_at = _columns(feature, rows.columns)
    changes: list[Change] = []
    refused: list[tuple[str, HeadwaterError]] = []
    for row in rows.rows:
        if row[id_at] is None:
            continue
        entity_id = str(row[id_at])
        try:
            moment = _moment(feature, entity_id, row[time_at]) if time_at is not None else now
            cell = _cell(feature, row[value_at], min(moment, now), now)
        except (FeatureValueError, FeatureFailedError) as error:
            refused.append((entity_id, error))
        else:
            changes.append(make_change(feature, entity_id, cell, cause))
    return changes, refused


def _cell(feature: FeatureDef, value: object, moment: datetime, now: datetime) -> Cell:
    if isinstance(value, Decimal) and feature.codec.kind == "float":
        value = float(value)  # databases return averages of integers as decimals
    return make_cell(feature, value, to_micros(moment), to_micros(now))


def _columns(feature: FeatureDef, columns: Sequence[str]) -> tuple[int, int, int | None]:
    """Return the places of entity id, value and, if there is one, timestamp."""
    columns = list(columns)
    value = next((name for name in ("value", feature.name) if name in columns), None)
    if feature.entity.id_field not in columns or value is None:
        raise InvalidInputError(
            f"the query of feature {feature.name!r} returns the columns {', '.join(columns)}; "
            f"it must return {feature.entity.id_field!r} and 'value' (or {feature.name!r})"
        )
    time_at = columns.index("timestamp") if "timestamp" in columns else None
    return columns.index(feature.entity.id_field), columns.index(value), time_at


def _moment(feature: FeatureDef, entity_id: str, timestamp: object) -> datetime:
    if not isinstance(timestamp, datetime):
        problem = f"the query returns {timestamp!r} as timestamp, which is not a date and time"
        raise FeatureFailedError(feature.name, entity_id, problem)
    if timestamp.tzinfo is None:
        problem = (
            f"the query returns {timestamp} as timestamp, without a time zone; name its zone, for "
            "example: ordered_at AT TIME ZONE 'UTC' AS timestamp"
        )
        raise FeatureFailedError(feature.name, entity_id, problem)
    return timestamp
