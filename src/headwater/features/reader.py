"""Reading feature values: stored ones in one round trip, the rest computed level by level."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.core.deadlines import Slot
from headwater.core.logging import log
from headwater.core.metrics import TallyCounter
from headwater.declarations.feature_handles import FeatureRef
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    FeatureFailedError,
    FeatureValueError,
)
from headwater.features.batch_state import HandlerTransaction
from headwater.features.call_scope import (
    CallScope,
    Past,
    calling,
    current_reads,
    current_scope,
    enter,
    leave,
    loaded_value,
    tracking,
)
from headwater.features.cells import history_cell, make_cell, make_change
from headwater.features.derivation_cache import DerivationCache
from headwater.features.read_plan import Plan, Plans, live_cell
from headwater.features.read_tracking import (
    MomentReads,
    OnFailure,
    Reads,
    tracked_feature,
)
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.features.running_calls import RunningCall, UserCall
from headwater.features.services import Services
from headwater.features.single_flight import SingleFlight
from headwater.features.store_loss import StoreLoss
from headwater.features.template_reads import rendered
from headwater.features.value_freshness import Evidence, apply_rules, derivation_of, missed_events
from headwater.features.window_reads import MISSING, FamilyRead, WindowReader, absent
from headwater.features.window_states import WindowStates
from headwater.model.features import FeatureRow
from headwater.model.values import (
    UNDATED,
    Cell,
    Cells,
    FeatureValue,
    as_of_time,
    decode_cells,
)
from headwater.ports import Point

CACHE = TallyCounter(
    "headwater_feature_cache_total",
    "Reads of computed features that are cached; `outcome` is `hit` or `miss`.",
    ["feature", "outcome"],
)
S = TypeVar("S")


class Reader:
    """Reads values of features: stored, cached, rendered from a template, or computed."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._online = services.backends.online
        self._offline = services.backends.offline
        self._calls = services.feature_calls
        self._clock = services.clock
        self._catalog = services.catalog
        self._group = services.settings.worker.consumer_group
        self.loss = StoreLoss(services.backends.lifecycle, services.settings)
        self._derivations = DerivationCache(services.backends, services.registry)
        self._outcomes = RefreshOutcomes(services.backends.notes, services.clock)
        self._plans = Plans(services.registry)
        self._windows = WindowReader(WindowStates(services.backends))
        self._flights: SingleFlight[FeatureValue] = SingleFlight()
        self._unreadable: set[str] = set()

    @property
    def changes(self) -> Sequence[datetime]:
        """The moments at which features became others than before, oldest first."""
        return self._registry.changes

    async def value(self, name: str, entity_id: object) -> Any:
        """Return one bare value.

        Handlers call nothing more often: a stored value of a loaded entity needs no plan.
        """
        value = loaded_value(self._registry.feature(name), entity_id)
        if value is msgspec.UNSET:
            (values,) = await self.values((name,), (entity_id,))
            return values[name]
        return value

    async def values(
        self, names: Sequence[FeatureRef], entity_ids: Iterable[object]
    ) -> list[dict[str, Any]]:
        """Return the bare values of features for each entity; stored ones without any detour."""
        scope = current_scope()
        if scope.transaction is None and self.loss.is_check_due:
            await self.check(scope)
        plan = self._plan(names, scope)
        if plan.computed or scope.reads is not None or scope.transaction is not None:
            given = list(entity_ids)
            if len(given) == 1 and scope.reads is not None and scope.reads.moments is not None:
                loaded = {f.name: loaded_value(f, given[0]) for f in plan.requested}
                if all(value is not msgspec.UNSET for value in loaded.values()):
                    return [loaded]
            rows = await self._tracked(plan, given, scope)
            return [{f.name: row[f.name].value for f in plan.requested} for row in rows]
        ids = list(map(plan.entity.text_id, entity_ids))
        now = self._clock.micros()
        packed = await self._online.get_packed(plan.entity.name, ids)
        if self.loss.known is not None:
            packed = self.loss.filter(ids, packed, b"{}")
        try:
            values = [plan.view.values(state, now) for state in packed]
        except FeatureValueError:
            if len(ids) == 1:
                raise
            values = [None]
        if None not in values:
            return cast("list[dict[str, Any]]", values)
        cells = [*map(decode_cells, packed)]
        cells = await self._windows.readable(plan.families, ids, cells, now)
        rows = self._stored_rows(plan, ids, cells, now)
        return [{name: value.value for name, value in row.items()} for row in rows]

    def slot(self) -> AbstractContextManager[Slot]:
        """Return a context manager with the slot of a coroutine that computes many values."""
        return self._calls.deadline.slot()

    async def compute(
        self, slot: Slot, transaction: HandlerTransaction, name: str, entity_id: str
    ) -> FeatureValue:
        """Return a value of the past as JSON text, in a coroutine of `run_concurrently`.

        It is the one of ``read``. A frame needs many, so a value that is not even cached takes the
        short way to its function.
        """
        scope = CallScope(transaction)
        (feature,) = self._plan((name,), scope).requested
        if feature.has_history or not feature.derived:
            token = enter(scope)
            try:
                (row,) = await self.read((name,), (entity_id,))
            finally:
                leave(token)
            value = row[name].value
            text = None if value is None else feature.codec.encode(value)
            return msgspec.structs.replace(row[name], value=text)
        call = RunningCall(UserCall(feature, {feature.entity.id_field: entity_id}), None)
        reads = _tracker(transaction)
        scope = CallScope(transaction, reads, call=call)
        try:
            value = await self._calls.call(slot, scope, feature, entity_id)
            # At once: the function may change the object afterwards.
            text = feature.codec.encode(value)
        except FeatureValueError as error:
            raise FeatureFailedError(feature.name, entity_id, str(error)) from error
        finally:
            call.is_over = True
        moments = reads.as_of()
        if moments.oldest is None and not moments.incomplete:
            transaction.observe_moment()
            moments.add(from_micros(transaction.now))
        as_of = None if moments.incomplete else moments.oldest
        provenance = frozenset(reads.provenance)
        is_missing = value is None
        return FeatureValue(None if is_missing else text, as_of, "computed", None, provenance)

    async def check(self, scope: CallScope) -> None:
        """Refuse a read of the present from a lost store, and follow the catalog.

        It is called outside of handlers, whose worker does both, and does it once a second.
        """
        if scope.past is None and self.loss.is_check_due:
            await self.loss.check()
            await self._catalog.try_to_follow()
            await self.follow_drops()

    async def follow_drops(self) -> int:
        """Return how often caches were dropped, and forget all that is from before the last."""
        return await self._derivations.drops()

    async def read(
        self, names: Sequence[FeatureRef], entity_ids: Iterable[object]
    ) -> list[FeatureRow]:
        """Return the values of features with age and source for each entity, in that order."""
        scope = current_scope()
        if scope.transaction is None and self.loss.is_check_due:
            await self.check(scope)
        return await self._tracked(self._plan(names, scope), entity_ids, scope)

    async def _tracked(
        self, plan: Plan, entity_ids: Iterable[object], scope: CallScope
    ) -> list[FeatureRow]:
        """Return the values of a plan, which the function that is running has then read."""
        ids = list(map(plan.entity.text_id, entity_ids))
        past = scope.past
        rows = await (self._rows(plan, ids) if past is None else self._past_rows(plan, ids, past))
        if scope.reads is not None:
            for entity_id, row in zip(ids, rows, strict=True):
                for feature in plan.requested:
                    scope.reads.track_feature(feature, entity_id, row[feature.name])
                    if past is not None:
                        past.advance(feature, entity_id)
        return rows

    async def _past_rows(self, plan: Plan, ids: Sequence[str], past: Past) -> list[FeatureRow]:
        """Return the values that a past has itself, and all others as they were."""
        kept: list[FeatureRow] = [
            {f.name: value for f in plan.requested if (value := past.value(f, i)) is not None}
            for i in ids
        ]
        names = [f.name for f in plan.requested if any(f.name not in row for row in kept)]
        if not names:
            return kept
        needed = plan if len(names) == len(plan.requested) else self._plan(names, current_scope())
        rows = await self._rows(needed, ids)
        return [
            {f.name: own.get(f.name) or row[f.name] for f in plan.requested}
            for own, row in zip(kept, rows, strict=True)
        ]

    async def _rows(self, plan: Plan, ids: Sequence[str]) -> list[FeatureRow]:
        """Return the values of the features of a plan, each looked up or computed."""
        scope = current_scope()
        past = scope.past
        cells, now, evidence = await self._cells(plan, ids, scope)
        if plan.families and past is None:
            cells = await self._windows.readable(plan.families, ids, cells, now)
        tracked = scope.reads is not None and scope.reads.moments is None
        rows = self._stored_rows(plan, ids, cells, now, tracked=tracked)
        if plan.families and past is not None:
            for entity_id, row in zip(ids, rows, strict=True):
                row |= await self._windows.past(plan.families, entity_id, past)
        if plan.caught_up and scope.is_judged:
            if past is None:  # the past has it recorded
                evidence = await self._evidence(plan, rows, evidence)
            apply_rules(plan, ids, cells, rows, past, evidence)
        if plan.computed:
            stored_rows = zip(ids, cells, rows, strict=True)
            rows = await _gathered(
                [self._compute_row(plan, *stored_row, now) for stored_row in stored_rows]
            )
        return rows

    async def windows(
        self, family: FeatureDef, entity_id: object
    ) -> tuple[FamilyRead, Cell | None, int]:
        """Return how all features of a family are read, the state to read, and the moment."""
        scope, windows = current_scope(), family.windows
        assert windows is not None, "only families have windows"
        if scope.transaction is None and self.loss.is_check_due:
            await self.check(scope)
        plan = self._plan(windows.members, scope)
        ids, (read,) = [plan.entity.text_id(entity_id)], plan.families
        cells, now, _ = await self._cells(plan, ids, scope)
        known: int | None = None
        if scope.past is not None:
            # All of them were read at one moment, so the record of one is that of all.
            recorded = scope.past.window(read.features[0], ids[0])
            known = now
            if recorded is not None:
                folded, now = recorded.last_fold, to_micros(recorded.read_at)
                known = UNDATED if folded is None else to_micros(folded)
        (held,) = await self._windows.readable(plan.families, ids, cells, now, known=known)
        return read, held.get(read.family.series), now

    def _plan(self, names: Sequence[FeatureRef], scope: CallScope) -> Plan:
        # Asking for the moment would cost a percent of a read of the present.
        if scope.past is None and scope.transaction is None:
            return self._plans.plan(names, scope.variant)
        moment = scope.known_at
        if moment is None:
            return self._plans.plan(names, scope.variant)
        return self._plans.plan_at(names, moment)

    async def _cells(
        self, plan: Plan, ids: Sequence[str], scope: CallScope
    ) -> tuple[list[Cells], int, Evidence]:
        """Return the cells that the scope sees, the time, and moments if freshness needs them."""
        if scope.past is not None:
            return (
                await self._past_cells(plan, ids, scope.past),
                to_micros(scope.past.began),
                Evidence(),
            )
        entity, transaction = plan.entity.name, scope.transaction
        evidence = Evidence()
        if plan.is_waited_for and scope.is_judged:
            # The moments up to which the events of partitions and entities are in the cells.
            now = self._clock.now()
            standings = await self._online.get_with_waiting(entity, ids)
            cells = [standing.cells for standing in standings]
            waiting = [standing.waiting_since for standing in standings]
            moments = [now if since is None else min(now, from_micros(since)) for since in waiting]
            evidence = Evidence(moments, [standing.unhandled for standing in standings])
        elif transaction is None:
            cells = await self._online.get(entity, ids)
        if transaction is not None:
            return await transaction.get(entity, ids, plan.kept), transaction.now, evidence
        if self.loss.known is not None:
            cells = self.loss.filter(ids, cells, {})
        return cells, self._clock.micros(), evidence

    async def _evidence(
        self, plan: Plan, rows: Sequence[FeatureRow], waiting: Evidence
    ) -> Evidence:
        """Return what shows that the values of a read are current."""
        runs = {
            feature.name: await self._outcomes.last_success(feature)
            for feature in plan.caught_up
            if feature.sql and any(row[feature.name].source == "default" for row in rows)
        }
        missed = {
            feature.name: missed_events(self._catalog.state, feature, self._group)
            for feature in plan.caught_up
            if feature.triggers
        }
        return waiting._replace(runs=runs, missed=missed)

    async def _past_cells(self, plan: Plan, ids: Sequence[str], past: Past) -> list[Cells]:
        """Return the cells that a reader in the past would have got."""
        kept = [feature for feature in plan.kept if feature.windows is None]
        requested = [[Point(i, past.moment(f, i)) for f in kept] for i in ids]
        points = list(dict.fromkeys(point for row in requested for point in row))
        rows = await self._offline.as_of([f.series for f in kept], points, known=True)
        by_point = dict(zip(points, rows, strict=True))
        values = ([by_point[point][place] for place, point in enumerate(row)] for row in requested)
        return [
            {f.series: history_cell(f, value) for f, value in zip(kept, row, strict=True) if value}
            for row in values
        ]

    def _stored_rows(
        self,
        plan: Plan,
        ids: Sequence[str],
        cells: Iterable[Cells],
        now: int,
        *,
        tracked: bool = False,
    ) -> list[FeatureRow]:
        """Return the stored values; in a read of many, an unreadable one is missing."""
        rows: list[FeatureRow] = []
        for entity_id, state in zip(ids, cells, strict=True):
            try:
                row = {f.name: _stored(f, state, now) for f in plan.stored}
            except FeatureValueError as error:
                if len(ids) == 1:
                    raise
                if error.feature not in self._unreadable:
                    self._unreadable.add(error.feature)
                    log.warning(
                        "stored value cannot be read",
                        feature=error.feature,
                        entity_id=entity_id,
                        error=str(error),
                    )
                row = {f.name: _readable(f, state, now) for f in plan.stored}
            for read in plan.families:
                row |= read.row(state.get(read.family.series), now, tracked=tracked) or {}
            if plan.families and not plan.computed:
                row = {feature.name: row[feature.name] for feature in plan.requested}
            rows.append(row)
        return rows

    async def _compute_row(
        self, plan: Plan, entity_id: str, cells: Cells, row: FeatureRow, now: int
    ) -> FeatureRow:
        for level in plan.computed:
            values = await _gathered(
                [self._compute(feature, entity_id, row, cells, now) for feature in level]
            )
            row |= {feature.name: value for feature, value in zip(level, values, strict=True)}
        return {feature.name: row[feature.name] for feature in plan.requested}

    def _compute(
        self, feature: FeatureDef, entity_id: str, row: FeatureRow, cells: Cells, now: int
    ) -> Awaitable[FeatureValue]:
        if feature.template is not None:
            return _ready(rendered(feature, entity_id, row, self._registry.features))
        cell = live_cell(feature, cells, now)
        if feature.has_history and cell is not None:
            return self._from_cache(feature, entity_id, cell)
        return self._missed(feature, entity_id, cells.get(feature.series))

    async def _from_cache(self, feature: FeatureDef, entity_id: str, cell: Cell) -> FeatureValue:
        """Return a stored value; compute it again if its derivation is needed and was lost."""
        value, scope = _from_cell(feature, cell), current_scope()
        if scope.reads is not None and scope.past is None and cell.derived:
            derivation = await self._derivations.get(feature.series, entity_id, cell.written_at)
            if derivation is None:
                return await self._missed(feature, entity_id, cell)
            value = derivation.of(value)
        CACHE.add(feature.name, "hit")
        if feature.freshness == "caught_up":
            return msgspec.structs.replace(value, rule="caught_up", current_at=value.written_at)
        return value

    def _missed(
        self, feature: FeatureDef, entity_id: str, before: Cell | None
    ) -> Awaitable[FeatureValue]:
        if feature.kept:
            CACHE.add(feature.name, "miss")
        return self._call_once(feature, entity_id, UNDATED if before is None else before.as_of)

    async def _call_once(self, feature: FeatureDef, entity_id: str, earliest: int) -> FeatureValue:
        """Compute a value; concurrent readers of one missing value share the computation.

        ``earliest`` is the ``as_of`` under which a value without a moment is stored.
        """
        transaction = current_scope().transaction
        if transaction is not None and not transaction.is_computable(feature):
            return absent(feature)
        call = UserCall(feature, {feature.entity.id_field: entity_id})
        compute = partial(self._call, feature, entity_id, earliest)
        failed = tracked_feature(feature, entity_id, MISSING)
        with OnFailure(lambda: current_reads().track_failure(failed)):
            try:
                if current_scope().is_shareable:
                    # A computation that began before an erasure is not shared after it.
                    key = f"{self._derivations.known_drops}\0{feature.name}\0{entity_id}"
                    abandoned = partial(_abandoned, feature)
                    computed = await self._flights.do(
                        key, call, compute, abandoned, is_kept=feature.kept
                    )
                else:
                    with calling(call):
                        computed = await compute()
            except RecursionError as error:
                raise FeatureFailedError(feature.name, entity_id, str(error)) from error
        # Each caller gets a separate object, which it may change.
        return msgspec.structs.replace(computed, value=feature.codec.decode(computed.value))

    async def _call(self, feature: FeatureDef, entity_id: str, earliest: int) -> FeatureValue:
        """Call the function; return its value as JSON text, which several callers may share."""
        scope = current_scope()
        reads, is_stored = _tracker(scope.transaction), feature.kept and scope.is_shareable
        drops = await self.follow_drops() if is_stored else 0
        with (
            OnFailure(lambda: current_reads().provenance.update(reads.provenance)),
            tracking(reads),
            self._calls.deadline.slot() as slot,
        ):
            value = await self._calls.call(slot, None, feature, entity_id)
        now, moments = self._now(), reads.as_of()
        # A value computed from a default has no moment.
        as_of = None if moments.incomplete else moments.oldest or now
        if as_of is now and scope.transaction is not None:
            scope.transaction.observe_moment()
        derivation = derivation_of(feature, reads, now)
        about, derived = to_micros(as_of) if as_of else earliest, bool(derivation.provenance)
        try:
            cell = make_cell(feature, value, about, to_micros(now), derived=derived)
        except FeatureValueError as error:
            raise FeatureFailedError(feature.name, entity_id, str(error)) from error
        if is_stored and drops == await self.follow_drops():
            # The derivation first: a cached value is never without it.
            if derived:
                await self._derivations.put(feature, entity_id, cell.written_at, derivation, drops)
            change = make_change(
                feature, entity_id, cell, "computed", authoritative=False, begins=False
            )
            await self._online.put([change])
        if feature.log:
            await self._log(feature, entity_id, value, now)
        return FeatureValue(
            cell.value,
            as_of,
            "computed",
            None,
            derivation.provenance,
            derivation.rule,
            derivation.current_at,
            derivation.inputs,
        )

    def _now(self) -> datetime:
        """Return the time; in a handler that of its transaction, in the past its moment."""
        scope = current_scope()
        moment = scope.moment
        if moment is None and scope.transaction is not None:
            moment = scope.transaction.now
        return self._clock.now() if moment is None else from_micros(moment)

    async def _log(self, feature: FeatureDef, entity_id: str, value: object, now: datetime) -> None:
        """Write a value to history that was computed to be served, unless this is a replay.

        It may depend on anything at the moment of its computation, so it is of that moment, and
        not of its oldest input.
        """
        scope, moment = current_scope(), to_micros(now)
        if scope.is_isolated:
            return
        cell = make_cell(feature, value, moment, moment)
        change = make_change(
            feature, entity_id, cell, "served", online=False, authoritative=False, begins=False
        )
        if scope.transaction is None:
            await self._online.put([change])
        else:
            await scope.transaction.add_to_history(change)


def _abandoned(feature: FeatureDef, error: BaseException) -> None:
    log.warning(
        "feature computation failed after its callers had gone",
        feature=feature.name,
        error=type(error).__name__,
    )


async def _gathered(calls: Sequence[Awaitable[S]]) -> list[S]:
    """Await calls at once; a single one needs no task, unless it may be one of a long chain."""
    if len(calls) == 1 and current_scope().call is None:
        return [await calls[0]]
    return await asyncio.gather(*calls)


def _tracker(transaction: HandlerTransaction | None) -> Reads:
    return Reads() if transaction is None or transaction.has_provenance else MomentReads()


async def _ready(value: FeatureValue) -> FeatureValue:
    return value


def _stored(feature: FeatureDef, cells: Cells, now: int) -> FeatureValue:
    cell = live_cell(feature, cells, now)
    return absent(feature) if cell is None else _from_cell(feature, cell)


def _readable(feature: FeatureDef, cells: Cells, now: int) -> FeatureValue:
    try:
        return _stored(feature, cells, now)
    except FeatureValueError:
        # Not the default: a value was computed, so the default would look like a fact.
        return MISSING


def _from_cell(feature: FeatureDef, cell: Cell) -> FeatureValue:
    is_undated = cell.as_of == UNDATED and not feature.stored
    as_of = None if is_undated else as_of_time(cell)
    value, written_at = feature.codec.decode(cell.value), from_micros(cell.written_at)
    return FeatureValue(value, as_of, "online", written_at)
