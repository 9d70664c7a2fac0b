"""The declarations of one store, by name."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any, TypeVar

import msgspec

from headwater.core.sql_sources import check_name, kind_of, shown
from headwater.declarations.contexts import ContextDef
from headwater.declarations.definitions import definition_of
from headwater.declarations.events import EventDef
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.indexes import IndexDef, IndexRef, index_name
from headwater.declarations.meanings import PastNames, earlier_ttls, lineage_of
from headwater.declarations.retrievers import RetrieverDef
from headwater.declarations.run_set import RunSet, declared_as
from headwater.declarations.series import (
    declared_entry,
    foreign_series,
    fresh_series,
    is_other_kind,
    served_series,
    unfit_series,
)
from headwater.errors import (
    DeclarationError,
    DuplicateNameError,
    InvalidInputError,
    UnknownNameError,
)
from headwater.errors.hints import Location, closest
from headwater.model.callers import current_caller
from headwater.model.catalog import CatalogEntry, CatalogState, FeatureVersion
from headwater.model.values import EntityKey, Part, ServiceEvent

D = TypeVar("D", EntityDef, EventDef, FeatureDef, RetrieverDef, ContextDef, IndexDef)
T = TypeVar("T")

_KINDS_OF_IDS = ("text", "int", "json")
SEARCH = "search:"
"""The beginning of the name of a direct search of an index."""


class Registry:
    """Declarations under unique names, and the versions of features that run."""

    def __init__(self) -> None:
        self.entities: dict[str, EntityDef] = {}
        self.events: dict[str, EventDef] = {}
        """The types of events whose payloads are declared."""
        self.features: dict[str, FeatureDef] = {}
        self.retrievers: dict[str, RetrieverDef] = {}
        self.contexts: dict[str, ContextDef] = {}
        self.indexes: dict[str, IndexDef] = {}
        self._implied_indexes: dict[str, IndexDef] = {}
        self.sources: dict[str, str] = {}
        self.event_types: dict[str, None] = {}
        """The types of events that trigger a feature."""
        self._subjects: dict[str, set[str]] = {}
        self.revision = 0
        self.is_converting = False
        """Whether the open store converts values of earlier types."""
        self._catalog = CatalogState()
        self._names: dict[str, str] = {}
        """The names of the features that are stored under another one."""
        self._changes: list[datetime] | None = None

    def add_entity(self, entity: EntityDef) -> None:
        _check_new("entity", entity, self.entities)
        self.entities[entity.name] = entity
        self.revision += 1

    def add_event(self, event: EventDef) -> None:
        _check_new("event", event, self.events)
        self.events[event.name] = event
        self.revision += 1

    def add_feature(self, feature: FeatureDef) -> None:
        _check_new("feature", feature, self.features)
        if self._catalog.revision and feature.codec.convert and not self.is_converting:
            raise DeclarationError(
                f"feature {feature.name!r} declares convert= after the store was opened; declare "
                "it before",
                feature.location,
            )
        self._follow_ownership(feature)
        self.features[feature.name] = feature
        if self._catalog.revision:
            self.serve(self._catalog)
        self.event_types |= dict.fromkeys(feature.triggers)
        for event_type in feature.triggers:
            self._subjects.setdefault(event_type, set()).add(feature.entity.name)
        self.revision += 1

    def _follow_ownership(self, feature: FeatureDef) -> None:
        """Let the implied features of its entity have its triggers, or let it take their place."""
        entity = feature.entity
        if feature.belongs_to is not None and not feature.is_implied:
            if not feature.stored or feature.codec.kind not in _KINDS_OF_IDS:
                raise DeclarationError(
                    f"feature {feature.name!r} has the ids that each {entity.name} belongs to, and "
                    f"must store them: declare it with trigger= or stored=True and `-> str` or "
                    "`-> int`",
                    feature.location,
                )
            del self.features[entity.implied_name(feature.name)]
        for field, _ in entity.belongs_to if feature.triggers else ():
            implied = self.features.get(entity.implied_name(field))
            if implied is not None and implied.is_implied:
                triggers = tuple(dict.fromkeys((*implied.triggers, *feature.triggers)))
                self.features[implied.name] = msgspec.structs.replace(
                    implied, triggers=triggers, mode="triggered"
                )

    def owners(self, entity: EntityDef) -> Iterator[tuple[FeatureDef, EntityDef]]:
        """Yield the features with the ids that an entity belongs to, and the owners' entities."""
        for field, owner in entity.belongs_to:
            declared = self.features.get(field)
            if declared is None or declared.entity.name != entity.name:
                declared = self.features[entity.implied_name(field)]
            yield declared, owner

    def owned(self, owner: EntityDef) -> list[FeatureDef]:
        """Return the features with the ids of an owner: of all that may belong to it."""
        return [
            feature
            for entity in self.entities.values()
            for feature, other in self.owners(entity)
            if other.name == owner.name
        ]

    def serve(self, catalog: CatalogState) -> None:
        """Store and read the values of each feature under the series that the catalog names.

        Workers run the same versions as before, until they take another ``run_set``.
        """
        self._catalog, self._changes = catalog, None
        for name, feature in self.features.items():
            if feature.window is not None:  # its family was declared before it
                family = self.features[feature.window.family]
                served: dict[str, Any] = {
                    "series": family.series,
                    "foreign": family.foreign,
                    "is_other_kind": family.is_other_kind,
                }
            else:
                entry = self._entry(name)
                lineage = lineage_of(catalog, entry, feature)
                served = {
                    "series": lineage[0][0]
                    if lineage
                    else served_series(catalog, name, self.features),
                    "lineage": lineage,
                    "foreign": foreign_series(entry, feature),
                    "is_other_kind": is_other_kind(entry, feature),
                    "earlier_ttls": earlier_ttls(entry, feature),
                }
            if any(getattr(feature, field) != value for field, value in served.items()):
                self.features[name] = msgspec.structs.replace(feature, **served)
                self.revision += 1
        self._names = {
            feature.series: feature.name
            for feature in self.features.values()
            if feature.series != feature.name and feature.window is None
        }

    def _entry(self, name: str) -> CatalogEntry | None:
        return declared_entry(self._catalog, name, self.features)

    @property
    def changes(self) -> Sequence[datetime]:
        """The moments at which features became others than before, oldest first."""
        if self._changes is None:
            # Before it was first recorded, a feature was what that record says.
            entries = self._catalog.features.values()
            self._changes = sorted(
                {meaning.since for entry in entries for meaning in entry.meanings[1:]}
            )
        return self._changes

    def era(self, moment: datetime) -> tuple[int, int]:
        """Return a key of the time around a moment in which every feature was the same."""
        return self._catalog.revision, bisect_right(self.changes, moment)

    @property
    def past_names(self) -> PastNames:
        """What the features were over time."""
        return PastNames(self._catalog, self.features)

    def versions(self, name: str) -> tuple[FeatureDef, ...]:
        """Return the version of a feature that is served, and the ones kept fresh next to it."""
        feature = self.feature(name)
        entry = self._entry(name)
        return (feature, *_variants(feature, fresh_series(entry, feature)))

    def running(self, group: str) -> dict[str, tuple[FeatureDef, ...]]:
        """Return the versions of each triggered feature that a worker of a group has to run.

        A version with values of another type than the declared one is left out.
        """
        variants = {}
        for name, feature in self.features.items():
            if feature.triggers:
                entry = self._entry(name)
                unfit = unfit_series(entry, feature)
                fresh = _variants(feature, fresh_series(entry, feature, group))
                variants[name] = tuple(f for f in (feature, *fresh) if f.series not in unfit)
        return variants

    def run_set(self, group: str, own: Collection[str] = ()) -> RunSet:
        """Return the versions that a worker of a group has to run.

        It runs none if workers of other code have begun to run a version that is not its
        ``own``: events that it handles would be missing there.
        """
        foreign = self.foreign(group, own)
        # A version that joins is run in the partitions whose workers have joined.
        if any(v.state != "joining" or (v.backfill and v.backfill.joined) for v in foreign):
            return RunSet((), code=self._code())
        without = {version.series for version in foreign}
        running = chain.from_iterable(self.running(group).values())
        triggered = [feature for feature in running if feature.series not in without]
        return RunSet(triggered, self.scheduled(), self._code())

    def foreign(self, group: str, own: Collection[str] = ()) -> list[FeatureVersion]:
        """Return the versions for workers of a group that a backfill made with other code.

        ``own`` has the series that may be run nevertheless.
        """
        problems = []
        for name, feature in self.features.items():
            entry = self._entry(name)
            if entry is None or not feature.triggers:
                continue
            run = {entry.active and entry.active.series, *fresh_series(entry, feature, group)}
            problems += [
                version
                for version in entry.versions
                if version.series in run and version.series not in own and version.definition
                if version.definition != definition_of(feature)
            ]
        return problems

    def _code(self) -> str:
        """Return a hash of the code of all handlers, whichever versions of them run."""
        named = [
            msgspec.structs.replace(feature, series=feature.name)
            for feature in self.features.values()
            if feature.triggers or feature.refresh
        ]
        texts = sorted(chain.from_iterable(map(declared_as, named)))
        return sha256("\n".join(texts).encode()).hexdigest()[:16]

    def check_writable(self, feature: FeatureDef) -> None:
        """Raise InvalidInputError if no worker has entered the type of a feature's values yet."""
        if feature.lineage and all(v.series != feature.series for v in self._catalog.versions()):
            raise InvalidInputError(
                f"feature {feature.name!r} has values of another type than {feature.codec.expected}"
                ", and no worker has started that converts them; start one before you write values"
            )

    def built_series(self) -> set[str]:
        """Return the series of versions that not all workers run, because a backfill makes them."""
        versions = self._catalog.versions()
        return {version.series for version in versions if version.state in ("building", "joining")}

    def names_of(self, series: Iterable[str]) -> tuple[str, ...]:
        """Return the names of features for some series; a version that is not served has none."""
        names = self._names
        return tuple([names.get(name, name) for name in series]) if names else tuple(series)

    def add_retriever(self, retriever: RetrieverDef) -> None:
        _check_new("retriever", retriever, self.retrievers)
        self.retrievers[retriever.name] = retriever

    def add_context(self, context: ContextDef) -> None:
        _check_new("context", context, self.contexts)
        self.contexts[context.name] = context

    def add_index(self, index: IndexDef) -> None:
        _check_new("index", index, self.indexes)
        self.indexes[index.name] = index

    def imply_index(self, name: str, location: Location) -> None:
        """Declare an index with defaults, unless or until it is declared itself."""
        self._implied_indexes.setdefault(name, IndexDef(name=name, location=location))

    def is_declared(self, name: str) -> bool:
        """Return whether a feature, a context, a retriever or a search of an index has a name."""
        return (
            name in self.features
            or name in self.contexts
            or name in self.retrievers
            or name.removeprefix(SEARCH) in self.all_indexes()
        )

    def all_indexes(self) -> dict[str, IndexDef]:
        """Return the indexes by name: the declared ones, and the ones that retrievers name."""
        return self._implied_indexes | self.indexes

    def index(self, index: IndexRef) -> IndexDef:
        """Return the definition of an index; raise UnknownNameError if there is none."""
        return _declared("index", index_name(index), self.all_indexes())

    def context(self, name: str) -> ContextDef:
        """Return the context; raise UnknownNameError if there is none."""
        return _declared("context", name, self.contexts)

    def retriever(self, name: str) -> RetrieverDef:
        """Return the retriever; raise UnknownNameError if there is none."""
        return _declared("retriever", name, self.retrievers)

    def add_source(self, name: str, location: str) -> None:
        check_name(name)
        kind_of(name, location)
        if self.sources.get(name, location) != location:
            raise DeclarationError(
                f"source {name!r} is already declared as {shown(self.sources[name])!r}; rename one "
                "of them"
            )
        self.sources[name] = location
        self.revision += 1

    def source(self, name: str) -> str:
        """Return the location of a source; raise UnknownNameError if there is none."""
        return _declared("source", name, self.sources)

    def triggered_entities(self, event_type: str) -> Set[str]:
        """Return the entities of the features that a type of events triggers."""
        return self._subjects.get(event_type, set())

    def subjects(self, event: ServiceEvent) -> Iterator[EntityKey]:
        """Yield the entities that an event may be about, and those it names as their owners.

        An event that triggers nothing may be about any entity, and names no owner.
        """
        triggered = self._subjects.get(event.event_type)
        for name in triggered or self.entities:
            yield name, event.entity_id
        for name in triggered or ():
            yield from self.named_owners(self.entities[name], event)

    def named_owners(self, entity: EntityDef, event: ServiceEvent) -> Iterator[EntityKey]:
        """Yield the owners that the payload of an event of an entity names."""
        for field, owner in entity.belongs_to:
            owner_id = event.payload.get(field)
            if owner_id is not None and entity.implied_name(field) in self.features:
                with suppress(InvalidInputError):  # its handler fails
                    yield owner.name, owner.text_id(owner_id)

    def sources_of(self, events: Iterable[ServiceEvent]) -> Iterator[Part]:
        """Yield what events are about: the entities whose features they trigger, or any entity."""
        for event_type, entity_id in {(event.event_type, event.entity_id) for event in events}:
            entities = self.triggered_entities(event_type)
            for entity in entities:
                yield ("entity", entity, entity_id)
            if not entities:
                yield ("event", entity_id)

    def event_hint(self, event_type: str) -> str | None:
        """Return a hint if a type triggers nothing, is not declared and resembles one that is."""
        known = self.event_types | dict.fromkeys(self.events)
        if event_type in known or _is_caller_limited():
            return None
        close = closest(event_type, known)
        return close and f"no feature is triggered by {event_type!r}; did you mean {close!r}?"

    def entity(self, name: str) -> EntityDef:
        """Return the entity; raise UnknownNameError if there is none."""
        return _declared("entity", name, self.entities)

    def feature(self, name: str) -> FeatureDef:
        """Return the feature; raise UnknownNameError if there is none."""
        return self.features.get(name) or _declared("feature", name, self.features)

    def one_entity(self, names: Sequence[str]) -> EntityDef:
        """Return the entity that all these features belong to."""
        if not names:
            raise InvalidInputError("name at least one feature")
        entities = {feature.entity.name: feature.entity for feature in map(self.feature, names)}
        if len(entities) > 1:
            raise InvalidInputError(
                f"features of different entities ({', '.join(sorted(entities))}) cannot be read "
                "in one call; make one call per entity"
            )
        return next(iter(entities.values()))

    def scheduled(self) -> list[FeatureDef]:
        """Return the features with a schedule."""
        return [feature for feature in self.features.values() if feature.refresh]


def _variants(feature: FeatureDef, series: Iterable[str]) -> tuple[FeatureDef, ...]:
    return tuple(
        msgspec.structs.replace(feature, series=name) for name in series if name != feature.series
    )


def _check_new(kind: str, declared: D, existing: Mapping[str, D]) -> None:
    if declared.name in existing:
        first = existing[declared.name].location
        raise DuplicateNameError(kind, declared.name, declared.location, first)


def _declared(kind: str, name: str, existing: Mapping[str, T]) -> T:
    """Return a declaration by its name; a limited caller gets no hint of other names."""
    try:
        return existing[name]
    except KeyError:
        hints = None if _is_caller_limited() else existing
        raise UnknownNameError(kind, name, hints) from None


def _is_caller_limited() -> bool:
    caller = current_caller()
    return caller is not None and caller.limits is not None
