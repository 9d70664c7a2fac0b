"""Variants: the present declarations, with some of them taken back to the former ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from headwater.declarations.code_uses import CodeUse, reached_uses
from headwater.declarations.features import FeatureDef
from headwater.declarations.fingerprints import (
    Declared,
    Fingerprint,
    declared,
    fingerprints,
    is_same_but_default,
)
from headwater.declarations.meanings import PastNames
from headwater.declarations.registry import Registry
from headwater.errors.hints import Location
from headwater.model.catalog import CatalogState
from headwater.model.evaluations import DeclarationChange

D = TypeVar("D")

SERIES = "~evaluated"
"""The end of the names of series that are only in the memory of an evaluation."""


class Code(NamedTuple):
    """The declarations of a features file, and their fingerprints."""

    registry: Registry
    prints: Mapping[Declared, Fingerprint]

    @classmethod
    def of(cls, registry: Registry) -> Code:
        """Return the code with these declarations."""
        return cls(registry, fingerprints(registry))


class Changes:
    """What differs between the former and the present code, and the options of the run.

    ``options`` are by name: ``max_tokens``, ``model`` and ``index NAME``.
    """

    def __init__(self, base: Code, new: Code, options: Mapping[str, Any]) -> None:
        self.base = base
        self.new = new
        self.options = options
        self.keys = tuple(
            [
                *(
                    key
                    for key in dict.fromkeys((*new.prints, *base.prints))
                    if base.prints.get(key) != new.prints.get(key)
                ),
                *(Declared("option", name) for name in options),
            ]
        )
        """All that differ, also those of which only other declarations that they name do."""
        self.own = frozenset(filter(self._differs_itself, self.keys))

    def _differs_itself(self, key: Declared) -> bool:
        before, after = self.base.prints.get(key), self.new.prints.get(key)
        return before is None or after is None or before.own != after.own

    def listed(self) -> Iterator[DeclarationChange]:
        """Yield the declarations that differ themselves."""
        places = dict(declared(self.base.registry)) | dict(declared(self.new.registry))
        for key in self.keys:
            before, after = self.base.prints.get(key), self.new.prints.get(key)
            if key in self.own:
                place = places.get(key)
                yield DeclarationChange(
                    kind=key.kind,
                    name=key.name,
                    change="added" if before is None else "removed" if after is None else "changed",
                    location="" if place is None else _shown(place.location),
                    problem=unreproducible(place) or _unwritten(place),
                )

    def variant(self, taken_back: Set[Declared]) -> Variant:
        """Return the present declarations with some taken back."""
        return Variant(self, frozenset(taken_back))


def _shown(location: Location) -> str:
    """Return a location for people: a file of the working directory without its folder."""
    file, here = Path(location.file), Path.cwd()
    return (
        str(location._replace(file=str(file.relative_to(here))))
        if file.is_relative_to(here)
        else str(location)
    )


def _unwritten(declaration: Any) -> str:
    indexes = indexes_of(declaration) if isinstance(declaration, FeatureDef) else []
    return f"what it writes to index {', '.join(indexes)} is not replayed" if indexes else ""


def indexes_of(feature: FeatureDef) -> list[str]:
    """Return the indexes that the handler of a feature may write to."""
    if not feature.triggers or feature.is_implied:
        return []
    return sorted(use.name for use in reached_uses(feature.function) if use.kind == "index")


def _both(name: str, *codes: Mapping[str, FeatureDef]) -> list[FeatureDef]:
    return [features[name] for features in codes if name in features]


def unreproducible(declaration: Any) -> str:
    """Return why values of a declaration cannot be computed again; empty if they can."""
    if isinstance(declaration, FeatureDef):
        if declaration.sql is not None:
            return "its query reads tables whose past is not kept"
        if declaration.refresh is not None and not declaration.triggers:
            return "it runs on a schedule, and what its function saw is not kept"
    return ""


class Variant:
    """Declarations, and which recorded values do not hold for them."""

    def __init__(self, changes: Changes, taken_back: frozenset[Declared]) -> None:
        self.changes = changes
        self.taken_back = taken_back
        self.changed = frozenset(changes.keys) - taken_back
        self.options = {
            name: value
            for name, value in changes.options.items()
            if Declared("option", name) not in taken_back
        }

    @cached_property
    def features(self) -> Mapping[str, FeatureDef]:
        """The features by name."""
        base, new = self.changes.base.registry, self.changes.new.registry
        return self._chosen("feature", new.features, base.features)

    def _chosen(self, kind: Any, new: Mapping[str, D], base: Mapping[str, D]) -> dict[str, D]:
        """Return the present declarations of a kind, and the former ones that are taken back."""

        def is_base(declaration: Any) -> bool:
            window = declaration.window if kind == "feature" else None
            name = declaration.name if window is None else window.family
            return Declared(kind, name) in self.taken_back

        chosen = {
            name: base.get(name) if is_base(declaration) else declaration
            for name, declaration in new.items()
        }
        chosen |= {name: declaration for name, declaration in base.items() if is_base(declaration)}
        return {
            name: declaration for name, declaration in chosen.items() if declaration is not None
        }

    @cached_property
    def affected(self) -> frozenset[str]:
        """The features whose values may be others than with the former code."""
        affected = {key.name for key in self.changed if key.kind == "feature"}
        return frozenset(_closure(affected, [(end, start) for start, end in self._flows]))

    def upstream(self, names: Iterable[str]) -> set[str]:
        """Return features, and all that they may be computed from."""
        return _closure(names, self._flows)

    @cached_property
    def _flows(self) -> Sequence[tuple[str, str]]:
        """The features that are computed from another one, each before that."""
        uses = [(name, use) for name, f in self.features.items() for use in _uses(f)]
        flows = [(use.name, name) if use.is_written else (name, use.name) for name, use in uses]
        return flows + [
            (use.name, writer.name) for writer in self._former for use in _written(writer)
        ]

    @cached_property
    def _former(self) -> Sequence[FeatureDef]:
        """The former declarations of features that are changed: what they set is set no more."""
        base = self.changes.base.registry.features
        return [f for name, f in base.items() if Declared("feature", name) in self.changed]

    @cached_property
    def replayed(self) -> tuple[FeatureDef, ...]:
        """The affected features whose values stored events make, each under a series of its own."""
        writers = [f for name, f in self.features.items() if name in self.affected and f.triggers]
        names = {use.name for f in (*writers, *self._former) for use in _written(f)}
        names = {*self.affected.intersection(names), *(feature.name for feature in writers)}
        # What one handler sets anew, others set as before.
        names |= {
            name
            for name, feature in self.features.items()
            if any(use.name in names for use in _written(feature))
        }
        return tuple(
            replace(
                feature,
                series=feature.name + SERIES,
                lineage=(),
                foreign=None,
                is_other_kind=False,
                earlier_ttls=(),
            )
            for name, feature in self.features.items()
            if name in names and feature.window is None
        )

    def registry(self) -> Registry:
        """Return the declarations as those of a store."""
        base, new = self.changes.base.registry, self.changes.new.registry
        registry = VariantRegistry(self.replayed, self.affected)
        registry.entities = {**base.entities, **new.entities}
        registry.events = {**base.events, **new.events}
        registry.sources = {**base.sources, **new.sources}
        for feature in self.features.values():
            registry.declare(feature)
        registry.retrievers = self._chosen("retriever", new.retrievers, base.retrievers)
        registry.contexts = self._chosen("context", new.contexts, base.contexts)
        registry.indexes = self._chosen("index", new.all_indexes(), base.all_indexes())
        return registry

    def problems(self) -> dict[str, str]:
        """Return the affected features whose past values cannot be computed again, and why."""
        former = self.changes.base.registry.features
        return {
            name: problem
            for name in sorted(self.affected & self.features.keys())
            if (problem := unreproducible(self.features[name]))
            and not (
                Declared("feature", name) in self.changed
                and name in former
                and is_same_but_default(former[name], self.features[name])
            )
        }

    @cached_property
    def unwritten(self) -> Mapping[str, str]:
        """The indexes whose documents affected handlers may write, and one such feature of each."""
        former = self.changes.base.registry.features
        handlers = [f for name in sorted(self.affected) for f in _both(name, self.features, former)]
        return {index: feature.name for feature in handlers for index in indexes_of(feature)}


def _closure(names: Iterable[str], steps: Sequence[tuple[str, str]]) -> set[str]:
    """Return names, and all that steps lead to from them."""
    reached = set(names)
    while further := {end for start, end in steps if start in reached} - reached:
        reached |= further
    return reached


def _uses(feature: FeatureDef) -> frozenset[CodeUse]:
    """Return the features that one is computed from, or that its handler sets."""
    if feature.window is not None:
        return frozenset({CodeUse("feature", feature.window.family)})
    if feature.template is not None:
        return frozenset(CodeUse("feature", name) for name in feature.template.references)
    if feature.sql is not None:
        return frozenset()
    return frozenset(use for use in reached_uses(feature.function) if use.kind == "feature")


def _written(feature: FeatureDef) -> list[CodeUse]:
    """Return the features that a handler sets."""
    return [use for use in _uses(feature) if use.is_written and feature.triggers]


class VariantRegistry(Registry):
    """The declarations of a variant: replayed features are read from the memory of a replay."""

    def __init__(self, replayed: Iterable[FeatureDef], affected: Set[str]) -> None:
        super().__init__()
        self._replayed = {feature.name: feature for feature in replayed}
        self._affected = affected

    def declare(self, feature: FeatureDef) -> None:
        """Add a feature, whose file has been checked."""
        self.features[feature.name] = feature
        self.event_types |= dict.fromkeys(feature.triggers)
        for event_type in feature.triggers:
            self._subjects.setdefault(event_type, set()).add(feature.entity.name)

    def serve(self, catalog: CatalogState) -> None:
        """Store and read values as the catalog says, except those of replayed features."""
        self.features.update(self._replayed)
        super().serve(catalog)
        for name, feature in self.features.items():
            family = None if feature.window is None else self._replayed.get(feature.window.family)
            if family is not None:
                own = {"series": family.series, "foreign": None, "is_other_kind": False}
                self.features[name] = replace(feature, **own)
        self.features.update(self._replayed)
        self.revision += 1

    @property
    def past_names(self) -> PastNames:
        """What the features were over time; affected ones are what they are now."""
        return _VariantNames(self._catalog, self.features, self._replayed, self._affected)


class _VariantNames(PastNames):
    def __init__(
        self,
        state: CatalogState,
        declared: Mapping[str, FeatureDef],
        replayed: Mapping[str, FeatureDef],
        affected: Set[str],
    ) -> None:
        super().__init__(state, declared)
        self._replayed = replayed
        self._affected = affected

    def at(self, feature: FeatureDef, moment: datetime) -> FeatureDef:
        window = feature.window
        if feature.name in self._replayed or (window and window.family in self._replayed):
            return feature
        past = super().at(feature, moment)
        is_affected = feature.name in self._affected
        return replace(past, default=feature.default) if is_affected else past
