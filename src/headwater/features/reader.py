"""Reading feature values: stored ones in one round trip, the rest computed level by level."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from headwater.core.clock import MICROSECOND, Clock, from_micros, to_micros
from headwater.core.logging import log
from headwater.core.single_flight import SingleFlight
from headwater.core.templates import as_text
from headwater.core.values import Cell, Cells, FeatureValue, as_of_time, decode_cells
from headwater.declarations import graph
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import FeatureFailedError, FeatureValueError
from headwater.features.batch_state import (
    Past,
    Reads,
    current_past,
    current_reads,
    current_transaction,
    is_isolated,
    make_cell,
    make_change,
    tracking,
)
from headwater.features.provenance_cache import ProvenanceCache
from headwater.features.read_tracking import OnFailure, TrackedFeature, track_failure
from headwater.features.user_calls import Calls
from headwater.ports import Change, OfflineStore, OnlineStore, PastValue, Point

Row = dict[str, FeatureValue]
"""The values of one entity, by feature."""

_REST_OF_A_CELL: list[tuple[str, Any] | tuple[str, Any, Any]] = [
    ("as_of", int),
    ("written_at", int),
    ("expires_at", int | None, None),
]
_MOST_PLANS = 1_000
_MISSING = FeatureValue(None, None, "missing")


_computing: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("headwater_computing", default=())
"""The features and entities that are being computed here, each for the one before it."""


class View:
    """The stored features of a plan as one typed decoder, so that the rest is never made."""

    def __init__(self, features: Sequence[FeatureDef]) -> None:
        self._features = features
        # Fields get plain names of their own: a feature may be called anything.
        fields = [
            msgspec.defstruct(
                "TypedCell",
                [("value", feature.codec.annotation), *_REST_OF_A_CELL],
                array_like=True,
                gc=False,
            )
            for feature in features
        ]
        names = [f"f{number}" for number in range(len(features))]
        self._decode = msgspec.json.Decoder(
            msgspec.defstruct(
                "View",
                [(name, field | None, None) for name, field in zip(names, fields, strict=True)],
                rename={name: f.name for name, f in zip(names, features, strict=True)},
                gc=False,
            )
        ).decode
        self._fields = attrgetter(*names, "__class__")

    def values(self, packed: bytes | msgspec.Raw, now: int) -> dict[str, Any]:
        """The bare values in an entity's packed state."""
        try:
            cells = self._fields(self._decode(packed))
        except msgspec.ValidationError:
            # An edited annotation no longer fits a stored value; the slow way says whose.
            known = decode_cells(packed)
            return {f.name: _stored_value(f, known, now) for f in self._features}
        return {
            feature.name: feature.fallback()
            if cell is None or (cell.expires_at is not None and cell.expires_at <= now)
            else cell.value
            for feature, cell in zip(self._features, cells, strict=False)
        }


class Plan(msgspec.Struct, frozen=True):
    """What it takes to read some features: the same for every request, so made once."""

    entity: EntityDef
    wanted: tuple[FeatureDef, ...]
    stored: tuple[FeatureDef, ...]
    computed: tuple[tuple[FeatureDef, ...], ...]
    kept: tuple[FeatureDef, ...]
    view: View


class Reader:
    """Serves values of features, whichever way each of them is recomputed."""

    def __init__(
        self,
        registry: Registry,
        online: OnlineStore,
        offline: OfflineStore,
        calls: Calls,
        clock: Clock,
        origins: ProvenanceCache,
    ) -> None:
        self._registry = registry
        self._online = online
        self._offline = offline
        self._calls = calls
        self._clock = clock
        self._origins = origins
        self._plans: dict[tuple[int | str, ...], Plan] = {}
        self._together: SingleFlight[FeatureValue] = SingleFlight()

    async def read(self, names: Sequence[str], entity_ids: Iterable[object]) -> list[Row]:
        """The values of features for each entity, in the order asked."""
        plan = self.plan(names)
        ids = list(map(plan.entity.text_id, entity_ids))
        past = current_past()
        if past is None:
            cells = await (current_transaction() or self._online).get(plan.entity.name, ids)
        else:
            cells = await self._past(plan, ids, past)
        now = self._clock.micros() if past is None else to_micros(past.began)
        if plan.computed:
            pairs = zip(ids, cells, strict=True)
            rows = await asyncio.gather(*(self._compute_row(plan, i, c, now) for i, c in pairs))
        else:
            rows = [{f.name: _stored(f, own, now) for f in plan.stored} for own in cells]
        reads = current_reads()
        if reads is not None:
            for entity_id, row in zip(ids, rows, strict=True):
                for feature in plan.wanted:
                    reads.note(feature, entity_id, row[feature.name])
                    if past is not None:
                        past.note(feature, entity_id)
        return rows

    async def _past(self, plan: Plan, ids: Sequence[str], past: Past) -> list[Cells]:
        """The values that a reader would have been served then."""
        asked = [[Point(i, past.moment(f, i)) for f in plan.kept] for i in ids]
        points = list(dict.fromkeys(point for own in asked for point in own))
        rows = await self._offline.as_of([f.name for f in plan.kept], points, known=True)
        found = dict(zip(points, rows, strict=True))
        values = ([found[point][place] for place, point in enumerate(own)] for own in asked)
        return [
            {f.name: _as_cell(f, value) for f, value in zip(plan.kept, own, strict=True) if value}
            for own in values
        ]

    async def values(
        self, names: Sequence[str], entity_ids: Iterable[object]
    ) -> list[dict[str, Any]]:
        """The bare values of features for each entity; stored ones without any detour."""
        plan = self.plan(names)
        # Whoever runs a function or looks at a past moment has its reads noted.
        if plan.computed or current_reads() or current_transaction():
            rows = await self.read(names, entity_ids)
            return [{name: row[name].value for name in names} for row in rows]
        ids = list(map(plan.entity.text_id, entity_ids))
        now = self._clock.micros()
        packed = await self._online.get_packed(plan.entity.name, ids)
        return [plan.view.values(state, now) for state in packed]

    async def value(self, name: str, entity_id: object) -> Any:
        """One bare value; what handlers read most, so without a plan where it is stored."""
        feature = self._registry.feature(name)
        turn = current_transaction()
        if turn is None or not feature.stored or current_reads() is not None:
            (values,) = await self.values((name,), (entity_id,))
            return values[name]
        key = (feature.entity.name, feature.entity.text_id(entity_id))
        try:
            cells = turn.loaded(key)
        except KeyError:
            cells = await turn.cells(key)
        cell = cells.get(name)
        if cell is None or (cell.expires_at is not None and cell.expired(self._clock.micros())):
            return feature.fallback()
        return feature.codec.decode(cell.value)

    def plan(self, names: Sequence[str]) -> Plan:
        """The plan for reading these features, made at the first request for them."""
        key: tuple[int | str, ...] = (self._registry.revision, *names)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._make_plan(tuple(names))
        return plan

    def _make_plan(self, names: tuple[str, ...]) -> Plan:
        entity = self._registry.one_entity(names)
        features = self._registry.features
        levels = graph.levels(features, names)
        needed = [features[name] for level in levels for name in level]
        computed = [
            tuple(features[name] for name in level if not features[name].stored) for level in levels
        ]
        return Plan(
            entity,
            tuple(features[name] for name in dict.fromkeys(names)),
            tuple(feature for feature in needed if feature.stored),
            tuple(level for level in computed if level),
            tuple(feature for feature in needed if feature.kept),
            View([feature for feature in needed if feature.stored]),
        )

    async def _compute_row(self, plan: Plan, entity_id: str, cells: Cells, now: int) -> Row:
        row = {feature.name: _stored(feature, cells, now) for feature in plan.stored}
        for level in plan.computed:
            values = await asyncio.gather(
                *(self._compute(feature, entity_id, row, cells, now) for feature in level)
            )
            row |= {feature.name: value for feature, value in zip(level, values, strict=True)}
        return {feature.name: row[feature.name] for feature in plan.wanted}

    def _compute(
        self, feature: FeatureDef, entity_id: str, row: Row, cells: Cells, now: int
    ) -> Awaitable[FeatureValue]:
        if feature.template is not None:
            return _ready(_rendered(feature, entity_id, row))
        cell = _present(cells.get(feature.name), now)
        if feature.kept and cell is not None:
            return self._from_kept(feature, entity_id, cell)
        return self._call_once(feature, entity_id)

    async def _from_kept(self, feature: FeatureDef, entity_id: str, cell: Cell) -> FeatureValue:
        value = _from_cell(feature, cell)
        # What stays until a schedule replaces it was made of what nobody noted.
        if current_reads() is None or feature.ttl is None or current_past() is not None:
            return value
        provenance = await self._origins.of(feature.name, entity_id, cell.written_at)
        return msgspec.structs.replace(value, provenance=provenance) if provenance else value

    async def _call_once(self, feature: FeatureDef, entity_id: str) -> FeatureValue:
        """Computes a value; readers of one missing value at the same time share the computation."""
        chain = _computing.get()
        if (feature.name, entity_id) in chain:
            path = " → ".join([*(name for name, _ in chain), feature.name])
            raise FeatureFailedError(feature.name, entity_id, f"it reads itself: {path}")
        missed = TrackedFeature(feature, entity_id, _MISSING)
        with OnFailure(partial(track_failure, missed)):
            if current_transaction() is not None or is_isolated():
                # A handler's computations may rest on writes that nobody else sees yet, and those
                # of a past moment on what nobody sees any more.
                return await self._call(feature, entity_id)
            key = f"{feature.name}\0{entity_id}"
            begin = partial(self._call, feature, entity_id)
            return await self._together.do(key, begin, partial(_unheard, feature))

    async def _call(self, feature: FeatureDef, entity_id: str) -> FeatureValue:
        before = _computing.set((*_computing.get(), (feature.name, entity_id)))
        reads = Reads()
        failed = OnFailure(partial(_track_parts, reads))
        try:
            with failed, tracking(reads), self._calls.deadline.slot() as slot:
                value = await self._calls.call(slot, feature, entity_id)
        finally:
            _computing.reset(before)
        now = self._clock.now()
        # What was made from a default speaks of no moment, and is not kept as if it did.
        as_of = None if reads.incomplete else reads.oldest or now
        try:
            cell = make_cell(feature, value, to_micros(as_of or now), to_micros(now))
        except FeatureValueError as error:
            raise FeatureFailedError(feature.name, entity_id, str(error)) from error
        provenance = frozenset(reads.provenance)
        present = current_transaction() is None and not is_isolated()
        if feature.kept and as_of is not None and present:
            # Before the value, which is nowhere without what it was made of.
            if provenance and feature.ttl is not None:
                await self._origins.keep(
                    feature.name, entity_id, cell.written_at, provenance, feature.ttl
                )
            await self._online.put([_cached(feature, entity_id, cell)])
        return FeatureValue(feature.codec.decode(cell.value), as_of, "computed", None, provenance)


def _track_parts(reads: Reads) -> None:
    """Notes, for whatever runs here, what something else was to be made of."""
    around = current_reads()
    if around is not None:
        around.provenance |= reads.provenance


def _unheard(feature: FeatureDef, error: BaseException) -> None:
    log.warning("computation failed unheard", feature=feature.name, error=type(error).__name__)


def _as_cell(feature: FeatureDef, past: PastValue) -> Cell:
    """A value of history as it was online, with the end that its feature gives it."""
    written_at = to_micros(past.written_at)
    expires_at = None if feature.ttl is None else written_at + feature.ttl // MICROSECOND
    return Cell(msgspec.Raw(past.value), to_micros(past.as_of), written_at, expires_at)


async def _ready(value: FeatureValue) -> FeatureValue:
    return value


def _cached(feature: FeatureDef, entity_id: str, cell: Cell) -> Change:
    return make_change(feature, entity_id, cell, "computed", authoritative=False)


def _present(cell: Cell | None, now: int) -> Cell | None:
    return None if cell is None or cell.expired(now) else cell


def _stored(feature: FeatureDef, cells: Cells, now: int) -> FeatureValue:
    cell = _present(cells.get(feature.name), now)
    return _absent(feature) if cell is None else _from_cell(feature, cell)


def _stored_value(feature: FeatureDef, cells: Cells, now: int) -> Any:
    cell = cells.get(feature.name)
    if cell is None or (cell.expires_at is not None and cell.expires_at <= now):
        return feature.fallback()
    return feature.codec.decode(cell.value)


def _from_cell(feature: FeatureDef, cell: Cell) -> FeatureValue:
    return FeatureValue(
        feature.codec.decode(cell.value), as_of_time(cell), "online", from_micros(cell.written_at)
    )


def _absent(feature: FeatureDef) -> FeatureValue:
    return (
        _MISSING if feature.default is None else FeatureValue(feature.fallback(), None, "default")
    )


def _rendered(feature: FeatureDef, entity_id: str, row: Row) -> FeatureValue:
    """A template's text, as old as its oldest input; without all of them there is none."""
    if feature.template is None:
        return _MISSING
    inputs = {name: row[name] for name in feature.template.references}
    kind = feature.entity.name
    provenance = frozenset(("feature", kind, name, entity_id) for name in inputs).union(
        *(value.provenance for value in inputs.values())
    )
    if any(value.value is None for value in inputs.values()):
        return msgspec.structs.replace(_absent(feature), provenance=provenance)
    text = feature.template.render({name: as_text(value.value) for name, value in inputs.items()})
    moments = [value.as_of for value in inputs.values()]
    known = [moment for moment in moments if moment is not None]
    as_of = min(known) if known and len(known) == len(moments) else None
    return FeatureValue(text, as_of, "computed", None, provenance)
