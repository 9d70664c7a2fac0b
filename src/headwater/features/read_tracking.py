"""What a context's function sees: its arguments, and a note of all it reads, for its lineage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from datetime import datetime
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from headwater.core.canonical_json import canonical, child, to_tagged
from headwater.core.values import FeatureValue, Part
from headwater.declarations import Chunk, ContextDef, RetrieverDef
from headwater.declarations.features import FeatureDef
from headwater.errors import InvalidInputError
from headwater.features.batch_state import Reads, current_reads
from headwater.records.lineage import Context

_UNCHANGEABLE = frozenset({str, int, float, bool, NoneType})
_DEEPEST = 32
"""How many contexts and retrievers may run inside of each other."""


def bind(
    definition: ContextDef | RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Arguments by the names of their parameters, defaults included."""
    try:
        bound = definition.signature.bind(*arguments, **named)
    except TypeError as error:
        raise InvalidInputError(f"{definition.name!r}: {error}") from error
    bound.apply_defaults()
    return bound


def recordable(values: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """The values as they are now, refused where a record could not give them back.

    A function may change what it is given; the record says what it was given.
    """
    for name, value in values.items():
        to_tagged(value, child(pointer, name))
    return {
        name: value if type(value) in _UNCHANGEABLE else deepcopy(value)
        for name, value in values.items()
    }


class _Call:
    """A call of a context or a retriever that has begun."""

    __slots__ = ("arguments", "definition", "over")

    def __init__(self, definition: ContextDef | RetrieverDef, arguments: Mapping[str, Any]) -> None:
        self.definition = definition
        self.arguments = arguments
        self.over = False

    def same(self, definition: ContextDef | RetrieverDef, arguments: Mapping[str, Any]) -> bool:
        return self.definition is definition and _key(self.arguments) == _key(arguments)


def _key(arguments: Mapping[str, Any]) -> bytes:
    return canonical(to_tagged(dict(arguments)))


_calls: ContextVar[tuple[_Call, ...]] = ContextVar("headwater_calls", default=())
"""The calls that run here, each for the one before it."""


@contextmanager
def calling(definition: ContextDef | RetrieverDef, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Raises RecursionError for a call from inside of the same one: it would never end."""
    around = _calls.get()
    if around:
        # A task that a function leaves behind has its calls, but is no longer inside of them.
        around = tuple(call for call in around if not call.over)
        _check_recursion(around, definition, arguments)
    call = _Call(definition, arguments)
    token = _calls.set((*around, call))
    try:
        yield
    finally:
        call.over = True
        _calls.reset(token)


def _check_recursion(
    around: Sequence[_Call], definition: ContextDef | RetrieverDef, arguments: Mapping[str, Any]
) -> None:
    if any(call.same(definition, arguments) for call in around):
        path = " → ".join([*(call.definition.name for call in around), definition.name])
        raise RecursionError(f"it calls itself with the same arguments: {path}")
    if len(around) >= _DEEPEST:
        raise RecursionError(
            f"{_DEEPEST} contexts and retrievers run inside of each other, the last of them "
            f"{around[-1].definition.name!r}; let it end earlier"
        )


class TrackedFeature(NamedTuple):
    """A feature's value as the function got it."""

    feature: FeatureDef
    entity_id: str
    value: FeatureValue


class TrackedRetrieval(NamedTuple):
    """A search as the function got it."""

    retriever: str
    arguments: Mapping[str, Any]
    chunks: Sequence[Chunk]
    searched_at: datetime
    oldest: datetime | None
    """The moment of the search, or of the oldest that it read; None if that has none."""
    provenance: Set[Part]
    """What the search read, when it was made."""
    cache_hit: bool
    latency_us: int
    failed: bool = False


class TrackedContext(NamedTuple):
    """A context as the function got it, and what had been read for it."""

    context: Context
    oldest: datetime | None
    incomplete: bool
    provenance: Set[Part]


class ReadTracker(Reads):
    """The notes of one assembly; assemblies that run at the same time have each their own."""

    def __init__(self) -> None:
        super().__init__()
        self.features: list[TrackedFeature] = []
        self.retrievals: list[TrackedRetrieval] = []
        self.contexts: list[TrackedContext] = []
        self._known: dict[tuple[str, str], FeatureValue] = {}
        self._failed: dict[Hashable, TrackedFeature | TrackedRetrieval] = {}

    def note(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        """Takes note of a feature's value, of the same one again only once."""
        super().note(feature, entity_id, value)
        key = (feature.name, entity_id)
        self._failed.pop(key, None)
        if self._known.get(key) == value:
            return
        self._known[key] = own = _as_it_is(value)
        self.features.append(TrackedFeature(feature, entity_id, own))

    def track_search(self, search: TrackedRetrieval) -> None:
        """Takes note of a search."""
        if self._failed:
            self._failed.pop(_asked(search), None)
        self.retrievals.append(search)

    def track_failure(self, missed: TrackedFeature | TrackedRetrieval) -> None:
        """Takes note of what could not be had, unless it was before or is later."""
        if isinstance(missed, TrackedRetrieval):
            if all(_asked(search) != _asked(missed) for search in self.retrievals):
                self._failed[_asked(missed)] = missed
        elif (key := (missed.feature.name, missed.entity_id)) not in self._known:
            self._failed[key] = missed

    def close(self) -> None:
        """Takes what was not to be had for missing: whatever was asked for has been asked for."""
        failed, self._failed = self._failed, {}
        for missed in failed.values():
            if isinstance(missed, TrackedFeature):
                self.note(*missed)
            else:
                self.track_moment(None)
                self.retrievals.append(missed)


def _asked(search: TrackedRetrieval) -> Hashable:
    return (search.retriever, _key(search.arguments))


def _as_it_is(value: FeatureValue) -> FeatureValue:
    """A value that the function, which was given it as well, cannot change."""
    if type(value.value) in _UNCHANGEABLE:
        return value
    return msgspec.structs.replace(value, value=deepcopy(value.value))


def track_retrieval(note: TrackedRetrieval) -> None:
    """Takes note of a search for whatever runs here."""
    reads = current_reads()
    if reads is None:
        return
    reads.track_moment(note.oldest)
    reads.provenance |= note.provenance
    reads.provenance.update(("chunk", chunk.id) for chunk in note.chunks if chunk.id is not None)
    if isinstance(reads, ReadTracker):
        reads.track_search(note)


class OnFailure:
    """Takes note when what runs inside fails: whoever goes on without it has asked for it."""

    __slots__ = ("_note",)

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def __enter__(self) -> None:
        """Begins; nothing is needed for it."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Who is cancelled was given up, and has not failed.
        if isinstance(error, Exception):
            self._note()


def track_failure(missed: TrackedFeature | TrackedRetrieval) -> None:
    """Takes note, for a context that runs here, of what it asked for and could not have."""
    reads = current_reads()
    if isinstance(reads, ReadTracker):
        reads.track_failure(missed)


def track_context(note: TrackedContext) -> None:
    """Takes note of a context for whatever runs here."""
    reads = current_reads()
    if reads is None:
        return
    if note.oldest is not None:
        reads.track_moment(note.oldest)
    reads.incomplete |= note.incomplete
    reads.provenance |= note.provenance
    if isinstance(reads, ReadTracker):
        reads.contexts.append(note)


def track_all(scope: ReadTracker) -> None:
    """Takes note, for whatever runs here, of everything that was read in another scope."""
    reads = current_reads()
    if reads is None:
        return
    for feature in scope.features:
        reads.note(*feature)
    for retrieval in scope.retrievals:
        track_retrieval(retrieval)
    for context in scope.contexts:
        track_context(context)
