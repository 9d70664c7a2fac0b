"""Plans: which features a read needs, in which order, and how to decode the stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from headwater.core.codec import decoder
from headwater.declarations import graph
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.features.window_reads import FamilyRead, family_reads
from headwater.model.values import Cell, Cells, decode_cells

_CELL_FIELDS: list[tuple[str, Any] | tuple[str, Any, Any]] = [
    ("as_of", int),
    ("written_at", int),
    ("expires_at", int | None, None),
]
_MAX_PLANS = 1_000

_PlanKey = tuple[int | FeatureRef | tuple[str] | tuple[int, int], ...]


def live_cell(feature: FeatureDef, cells: Cells, now: int) -> Cell | None:
    """Return the stored cell of a feature unless it has expired."""
    cell = cells.get(feature.series)
    return None if cell is None or cell.expired(now) else cell


def check_readable(feature: FeatureDef) -> None:
    """Raise InvalidInputError for a family of windows, which has no value of its own."""
    if feature.windows is not None:
        raise InvalidInputError(
            f"{feature.name!r} is a family of windows and has no value of its own; read one of "
            f"{', '.join(feature.windows.members)}"
        )


class View:
    """A typed decoder of some features in an entity's packed state; it skips all others."""

    def __init__(
        self,
        plain: Sequence[FeatureDef],
        families: Sequence[FamilyRead] = (),
        order: Sequence[str] = (),
    ) -> None:
        features = (*plain, *(read.family for read in families))
        self._features = plain
        self._families = families
        self._order = order
        self._is_converted = any(feature.lineage for feature in features)
        # A feature may have any name, and a field of a struct may not.
        names = [f"f{number}" for number in range(len(features))]
        fields = [
            (name, _typed_cell(f) | None, None) for name, f in zip(names, features, strict=True)
        ]
        renamed = {name: f.series for name, f in zip(names, features, strict=True)}
        view = msgspec.defstruct("View", fields, rename=renamed, gc=False)
        self._decode = decoder(view)
        # With a second name the getter returns a tuple even for a single feature.
        self._cells = attrgetter(*names, "__class__")

    def values(self, packed: bytes | msgspec.Raw, now: int) -> dict[str, Any] | None:
        """Return the bare values in an entity's packed state; None if a state is not readable."""
        cells: Sequence[Any] | None
        try:
            cells = None if self._is_converted else self._cells(self._decode(packed))
        except msgspec.ValidationError:
            cells = None
        if cells is None:
            # A stored value does not fit an edited annotation; this way the error names it.
            stored = decode_cells(packed)
            cells = [stored.get(read.family.series) for read in self._families]
            live = [(feature, live_cell(feature, stored, now)) for feature in self._features]
            values = {
                feature.name: feature.codec.decode(cell.value) if cell else feature.fallback()
                for feature, cell in live
            }
        else:
            # Most cells have no time to live, and a call for each costs a tenth of a large read.
            values = {
                feature.name: feature.fallback()
                if cell is None or (cell.expires_at is not None and cell.expired(now))
                else cell.value
                for feature, cell in zip(self._features, cells, strict=False)
            }
            cells = cells[len(self._features) :]
        if not self._families:
            return values
        for read, cell in zip(self._families, cells, strict=False):
            found = read.values(None if cell is None else cell.value, now)
            if found is None:
                return None
            for feature in read.defaulted:
                if found[feature.name] is None:
                    found[feature.name] = feature.fallback()
            values |= found
        return {name: values[name] for name in self._order}


def _typed_cell(feature: FeatureDef) -> Any:
    kind = feature.codec.annotation if feature.windows is None else msgspec.Raw
    return msgspec.defstruct(
        "TypedCell",
        [("value", kind), *_CELL_FIELDS],
        namespace={"expired": Cell.expired},
        array_like=True,
        gc=False,
    )


class Plan(msgspec.Struct, frozen=True):
    """The features that a read needs: the ones requested and the ones these are computed from."""

    entity: EntityDef
    requested: tuple[FeatureDef, ...]
    stored: tuple[FeatureDef, ...]
    computed: tuple[tuple[FeatureDef, ...], ...]
    """By level: each level is computed from the ones before it."""
    kept: tuple[FeatureDef, ...]
    families: tuple[FamilyRead, ...]
    """The features of families, which are read from the states of these."""
    view: View
    caught_up: tuple[FeatureDef, ...]
    """The stored features whose freshness does not depend on their age."""
    is_waited_for: bool
    """Whether it depends on the events that wait in the partition for one of them."""


class Plans:
    """The plans of all reads so far; the same names have one plan."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._plans: dict[_PlanKey, Plan] = {}

    def plan(self, names: Sequence[FeatureRef], variant: FeatureDef | None = None) -> Plan:
        """Return the plan for reading these features, one of them perhaps in another version."""
        key: _PlanKey = (self._registry.revision, *names)
        if variant is not None:
            key = (*key, (variant.series,))
        plan = self._plans.get(key)
        if plan is None:
            features: Mapping[str, FeatureDef] = self._registry.features
            if variant is not None:
                features = {**features, variant.name: variant}
            plan = self._keep(
                key, self._make_plan([feature_name(name) for name in names], features)
            )
        return plan

    def plan_at(self, names: Sequence[FeatureRef], moment: datetime) -> Plan:
        """Return the plan for reading features as they were served at a moment.

        Raise InvalidInputError if a version that was served then has been dropped.
        """
        key: _PlanKey = (self._registry.revision, self._registry.era(moment), *names)
        plan = self._plans.get(key)
        if plan is None:
            present, past = self._registry.features, self._registry.past_names
            named = [feature_name(name) for name in names]
            needed = set(chain.from_iterable(graph.levels(present, named)))
            needed |= {window.family for name in needed if (window := present[name].window)}
            features = {**present, **{name: past.at(present[name], moment) for name in needed}}
            plan = self._keep(key, self._make_plan(named, features))
        return plan

    def _keep(self, key: _PlanKey, plan: Plan) -> Plan:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _make_plan(self, names: Sequence[str], features: Mapping[str, FeatureDef]) -> Plan:
        entity = self._registry.one_entity(names)
        levels = graph.levels(features, names)
        needed = [features[name] for level in levels for name in level]
        for feature in needed:
            check_readable(feature)
            feature.check_stored()
        computed = [
            tuple(
                features[name]
                for name in level
                if not features[name].stored and features[name].window is None
            )
            for level in levels
        ]
        stored = tuple(feature for feature in needed if feature.stored)
        families = family_reads(needed, features)
        for read in families:
            read.family.check_stored()
        # The events of a family are those of its features.
        windowed = [
            replace(feature, triggers=read.family.triggers)
            for read in families
            for feature in read.features
        ]
        caught_up = tuple(f for f in (*stored, *windowed) if f.freshness == "caught_up")
        kept = [feature for feature in needed if feature.has_history]
        return Plan(
            entity,
            requested=tuple(features[name] for name in dict.fromkeys(names)),
            stored=stored,
            computed=tuple(level for level in computed if level),
            kept=(*kept, *(read.family for read in families)),
            families=families,
            view=View(stored, families, list(dict.fromkeys(names))),
            caught_up=caught_up,
            is_waited_for=any(feature.triggers for feature in caught_up),
        )
