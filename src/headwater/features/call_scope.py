"""The call scope: what decides about the reads and writes of a running function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from headwater.core.clock import Clock, from_micros, to_micros
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import FeatureDef
from headwater.errors import ReplayWriteError
from headwater.features.batch_state import HandlerTransaction
from headwater.features.read_tracking import Reads, RetrievalKey, TrackedRetrieval
from headwater.features.running_calls import RunningCall, UserCall
from headwater.model.contexts import Overrides
from headwater.model.lineage import Context
from headwater.model.values import EVERYTHING, FeatureValue, FreshnessRule, Part, WindowRead

T = TypeVar("T")
MOST_SOURCES = 2_000
"""How many rows of one read are listed in a provenance; each is a few keys of a record."""

AssembleContext = Callable[
    [ContextDef, Sequence[Any], Mapping[str, Any], Overrides], Awaitable[Context]
]


class PastRead(NamedTuple):
    """A recorded read: when its value had been written, and how its freshness was judged.

    ``value`` is the recorded value as JSON text, None for none, if it is returned itself and not
    looked up.
    """

    written_at: datetime
    current_at: datetime | None
    rule: FreshnessRule
    window: WindowRead | None = None
    value: FeatureValue | None = None


ReadAt = Mapping[tuple[str, str, str], Sequence[PastRead]]
"""The reads of each (entity, feature, id), in their order."""

SearchedVersions = Mapping[RetrievalKey, Sequence[str]]
"""The versions of an index that each call searched, in their order."""

RecordedResults = Mapping[RetrievalKey, Sequence[TrackedRetrieval]]
"""The recorded results of each call, in their order; those that a replay may not use are absent."""


class Past:
    """A span of the past whose values are read in place of the present ones.

    ``read_at`` says which version of a value each read returned. For other reads, a stored value is
    the one of the beginning, because most reads happen early; a value that was computed and cached
    is the one of the end, because this span may have computed it. ``indexes`` has versions that are
    searched in place of those of that time.
    """

    def __init__(
        self,
        began: datetime,
        ended: datetime,
        read_at: ReadAt,
        searched: SearchedVersions,
        results: RecordedResults = MappingProxyType({}),
        indexes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.began = began
        self.ended = ended
        self._read_at = {key: list(reads) for key, reads in read_at.items()}
        self._indexes = indexes
        self._searched = {key: list(versions) for key, versions in searched.items()}
        self._results = {key: list(calls) for key, calls in results.items()}

    def moment(self, feature: FeatureDef, entity_id: str) -> datetime:
        """Return the moment whose value the next read of the feature returns."""
        reads = self._reads(feature, entity_id)
        if reads:
            return reads[0].written_at
        return self.began if feature.stored else self.ended

    def value(self, feature: FeatureDef, entity_id: str) -> FeatureValue | None:
        """Return the recorded value of the next read, decoded again; None to look it up."""
        for read in self._reads(feature, entity_id)[:1]:
            if read.value is not None:
                text = read.value.value
                value = None if text is None else feature.codec.decode(text)
                return replace(read.value, value=value)
        return None

    def window(self, feature: FeatureDef, entity_id: str) -> WindowRead | None:
        """Return how the next read of a feature of a family was evaluated, if it is recorded."""
        reads = self._reads(feature, entity_id)
        return reads[0].window if reads else None

    def judged(self, feature: FeatureDef, entity_id: str) -> tuple[FreshnessRule, datetime | None]:
        """Return how the next read is judged, and when its value was known to be current.

        That is the beginning for a read that is not recorded. The feature may have had another
        rule.
        """
        for read in self._reads(feature, entity_id)[:1]:
            return "dead_letter" if read.rule == "dead_letter" else "caught_up", read.current_at
        return "caught_up", self.began

    def advance(self, feature: FeatureDef, entity_id: str) -> None:
        """Move to the version that the following read returned, if there was one."""
        reads = self._reads(feature, entity_id)
        if len(reads) > 1:
            del reads[0]

    def searched(self, key: RetrievalKey, index: str) -> str | None:
        """Return the version of its index that the next such call searches, if it is known."""
        return self._indexes.get(index) or _next(self._searched.get(key, []))

    def results(self, key: RetrievalKey) -> TrackedRetrieval | None:
        """Return what the next such call found, if the record has it."""
        return _next(self._results.get(key, []))

    def former_results(self, key: RetrievalKey) -> TrackedRetrieval | None:
        """Return what such a call of a retriever found that was declared otherwise, if known."""
        return None

    def _reads(self, feature: FeatureDef, entity_id: str) -> list[PastRead]:
        return self._read_at.get((feature.entity.name, feature.name, entity_id), [])


def _next(recorded: list[T]) -> T | None:
    """Return what the next call got; further calls than the recorded ones get the last again."""
    return recorded.pop(0) if len(recorded) > 1 else next(iter(recorded), None)


class ReplayedSearch(NamedTuple):
    """A search of a replay: the name of the index or retriever, and as of when it searched.

    That is now, the recorded version of an index, the moment of the assembly, or now because the
    version of that time is gone. Or it did not search and returned the recorded results: as a
    whole, or with present metadata, because the version of that time is gone. Or it is "unasked":
    a model that the search needs may not be called.
    """

    name: str
    as_of: Literal["now", "recorded", "moment", "gone", "results", "texts", "unasked"]


class ReplayRun(NamedTuple):
    """A replay: it assembles contexts in place of the store, and lists its searches."""

    assemble: AssembleContext
    searches: list[ReplayedSearch]


class CallScope(msgspec.Struct, frozen=True):
    """What surrounds the code that runs here; each field is None outside of such a thing."""

    transaction: HandlerTransaction | None = None
    """The writes of the handler that is running."""
    reads: Reads | None = None
    """Where reads are tracked for the function that is running."""
    past: Past | None = None
    """The past whose values are read."""
    replay: ReplayRun | None = None
    call: RunningCall | None = None
    """The innermost call of a user's function."""
    variant: FeatureDef | None = None
    """The feature whose handler runs, if it is not the version of it that is served."""
    is_offline: bool = False
    """Whether searches call no model outside of this process."""

    @property
    def moment(self) -> int | None:
        """The time of what is computed here in microseconds, if that is of the past."""
        if self.past is not None:
            return to_micros(self.past.began)
        transaction = self.transaction
        return transaction.now if transaction is not None and transaction.is_past else None

    @property
    def known_at(self) -> datetime | None:
        """The moment whose served values are read here, if they are not the present ones."""
        if self.past is not None:
            return self.past.began
        return None if self.transaction is None else self.transaction.known_at

    @property
    def is_judged(self) -> bool:
        """Whether the freshness of reads matters: they are tracked, and no row of a frame."""
        transaction = self.transaction
        return self.reads is not None and not (transaction is not None and transaction.is_past)

    @property
    def is_isolated(self) -> bool:
        """Whether results are neither taken from a cache nor stored for others."""
        return self.past is not None or self.replay is not None

    @property
    def is_shareable(self) -> bool:
        """Whether results are the same for all readers.

        A handler may have read its own writes, which other readers see only after the commit.
        """
        return self.transaction is None and self.past is None and self.replay is None


_OUTERMOST = CallScope()
_scope: ContextVar[CallScope] = ContextVar("headwater_call_scope", default=_OUTERMOST)

current_scope = _scope.get
enter = _scope.set
"""Make a scope the current one; give the token to `leave` in the same task."""
leave = _scope.reset


def loaded_value(feature: FeatureDef, entity_id: object) -> Any:
    """Return a stored value that the running handler can read without the store, or UNSET.

    It needs no event loop, so that a sync handler reads the entities of its batch in its thread.
    """
    scope = _scope.get()
    transaction, reads = scope.transaction, scope.reads
    if transaction is None or not feature.stored or feature.windows is not None:
        return msgspec.UNSET
    if reads is not None and (reads.moments is None or not _is_as_now(transaction, feature)):
        return msgspec.UNSET
    variant = scope.variant
    if variant is not None and variant.name == feature.name:
        feature = variant
    entity = feature.entity
    # The id of a loaded entity is valid, so that text needs no check.
    is_text = type(entity_id) is str and entity.id_type is str
    key: Any = (entity.name, entity_id if is_text else entity.text_id(entity_id))
    try:
        cell = transaction.cell(key, feature)
    except KeyError:
        return msgspec.UNSET
    if cell is None or (cell.expires_at is not None and cell.expired(transaction.now)):
        if feature.is_foreign:
            return msgspec.UNSET
        value, as_of = feature.fallback(), None
    else:
        value, as_of = feature.codec.decode(cell.value), cell.as_of
    if reads is not None and reads.moments is not None:
        reads.moments.add(None if as_of is None else from_micros(as_of))
    return value


def _is_as_now(transaction: HandlerTransaction, feature: FeatureDef) -> bool:
    """Return whether a feature is the same in a transaction as at present."""
    return transaction.known_at is None and not feature.lineage and feature.foreign is None


class _Replaced:
    """A context manager that replaces fields of the scope for the code inside."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields = fields
        self._token: Token[CallScope]

    def __enter__(self) -> None:
        self._token = enter(replace(current_scope(), **self._fields))

    def __exit__(self, *_: object) -> None:
        leave(self._token)


def tracking(reads: Reads) -> _Replaced:
    """Track the reads of the code inside; the tracker around does not see them."""
    return _Replaced(reads=reads)


def current_reads() -> Reads:
    """Return the tracker of the function that is running, or one that is thrown away."""
    return current_scope().reads or Reads()


def track_source(*part: str) -> None:
    """Add a source to the provenance of the function that is running, if there is one."""
    reads = current_scope().reads
    if reads is not None:
        reads.provenance.add(part)


def track_sources(parts: Iterable[Part]) -> None:
    """Add the sources of many rows to the provenance; of too many rows, everything."""
    reads = current_scope().reads
    if reads is not None:
        sources = set(parts)
        reads.provenance |= sources if len(sources) <= MOST_SOURCES else {EVERYTHING}


@contextmanager
def at_moment(
    began: datetime,
    ended: datetime | None = None,
    read_at: ReadAt = MappingProxyType({}),
    searched: SearchedVersions = MappingProxyType({}),
    results: RecordedResults = MappingProxyType({}),
) -> Iterator[None]:
    """Read the values inside that were served at a moment, or from one to another."""
    with in_past(Past(began, ended or began, read_at, searched, results)):
        yield


def in_past(past: Past) -> _Replaced:
    """Read the values of a past inside."""
    # Tracked reads never take the reader's short way, which reads the present.
    return _Replaced(past=past, reads=current_reads())


def in_present() -> _Replaced:
    """Read present values inside, also in an as_of replay."""
    return _Replaced(past=None)


def offline() -> _Replaced:
    """Let searches inside call neither providers of embeddings nor functions that embed or rank."""
    return _Replaced(is_offline=True)


def replaying(replay: ReplayRun, reads: Reads) -> _Replaced:
    """Assemble contexts inside by the replay, and track its reads apart from those around it."""
    return _Replaced(replay=replay, reads=reads)


def begin_call(call: UserCall) -> RunningCall:
    """Return a call inside of the current one; raise RecursionError if it would never end."""
    return RunningCall(call, current_scope().call)


@contextmanager
def calling(call: UserCall) -> Iterator[None]:
    """Make a call the innermost one for the code inside."""
    running = begin_call(call)
    try:
        with _Replaced(call=running):
            yield
    finally:
        running.is_over = True


def current_replay() -> AssembleContext | None:
    """Return the function that assembles contexts in place of the store, if this is a replay."""
    replay = current_scope().replay
    return None if replay is None else replay.assemble


def track_search(search: ReplayedSearch) -> None:
    """Record a search, if this is a replay."""
    replay = current_scope().replay
    if replay is not None:
        replay.searches.append(search)


def check_not_replaying(verb: str) -> None:
    """Raise ReplayWriteError if this is a replay: the verb changes the store."""
    if current_replay() is not None:
        raise ReplayWriteError(verb)
    check_allowed_in_handler(verb)


def check_allowed_in_handler(verb: str) -> None:
    """Raise an error if this is a handler that may not call the verb."""
    transaction = current_scope().transaction
    if transaction is not None:
        transaction.check_allowed(verb)


def check_present(verb: str) -> None:
    """Raise an error if this computes a value of the past: the verb reads the present."""
    transaction = current_scope().transaction
    if transaction is not None and transaction.is_past:
        transaction.refuse_read(verb)


class ScopeClock:
    """The store's clock, as ``store.clock`` gives it to functions.

    A value that is computed for a row of a frame, in a replay or in a backfill sees the time of
    that row, record or event. Pauses and elapsed time are real also there.
    """

    def __init__(self, clock: Clock) -> None:
        self.real = real_clock(clock)

    def now(self) -> datetime:
        """Return the time, or the moment of the past that is computed here."""
        moment = _observed_moment()
        return self.real.now() if moment is None else from_micros(moment)

    def micros(self) -> int:
        """Return the same in microseconds since the epoch."""
        moment = _observed_moment()
        return self.real.micros() if moment is None else moment

    def monotonic(self) -> int:
        """Return microseconds that pass also while the past is computed."""
        return self.real.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self.real.sleep(seconds)


def _observed_moment() -> int | None:
    scope = current_scope()
    if scope.transaction is not None:
        scope.transaction.observe_moment()
    return scope.moment


def real_clock(clock: Clock) -> Clock:
    """Return the clock that does not depend on the scope, as leases and stored rows need it."""
    return clock.real if isinstance(clock, ScopeClock) else clock
