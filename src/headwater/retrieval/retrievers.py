"""Retrievers: calling them, and caching what they return."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from prometheus_client import Histogram

from headwater.core.canonical_json import canonical, to_tagged
from headwater.core.clock import from_micros, to_micros
from headwater.core.concurrency import both
from headwater.core.logging import log
from headwater.core.metrics import TallyCounter
from headwater.declarations.indexes import IndexDef
from headwater.declarations.interceptors import SearchResult
from headwater.declarations.items import Chunk
from headwater.declarations.registry import SEARCH
from headwater.declarations.retrievers import RetrieverDef, SearchOptions
from headwater.errors import (
    HeadwaterError,
    ReplayWriteError,
    RetrieverFailedError,
    RetrieverTimeoutError,
)
from headwater.features.call_scope import (
    ReplayedSearch,
    calling,
    check_allowed_in_handler,
    current_reads,
    current_scope,
    track_search,
    tracking,
)
from headwater.features.caller_limits import check_index_limits
from headwater.features.read_tracking import (
    FeatureKey,
    IndexSearched,
    OnFailure,
    Reads,
    RetrievalKey,
    TrackedRetrieval,
)
from headwater.features.reader import Reader
from headwater.features.running_calls import (
    UserCall,
    argument_key,
    bind,
    recordable,
)
from headwater.features.services import Services
from headwater.features.single_flight import SingleFlight
from headwater.features.user_calls import FailureTexts, Raising, is_mistake
from headwater.model.values import Part
from headwater.ports import Cached
from headwater.retrieval.chunk_results import PackedChunk, copied, pack, to_chunks, unpack
from headwater.retrieval.index_searches import NO_VERSION, IndexQuery, IndexSearches
from headwater.retrieval.past_versions import AsOf

CACHED_SEARCHES = "search:"
"""The beginning of the cache keys of all searches."""
_MILLISECOND = timedelta(milliseconds=1)
RETRIEVALS = TallyCounter(
    "headwater_retrievals_total",
    "Calls of retrievers, and searches of an index as `search:` and its name; "
    "`outcome` is `done` or `failed`.",
    ["retriever", "outcome"],
)
SECONDS = Histogram(
    "headwater_retrieval_seconds",
    "Time of a call of a retriever, or a search, that succeeded.",
    ["retriever"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0),
)
CACHE = TallyCounter(
    "headwater_retriever_cache_total",
    "Calls of retrievers with a `cache_ttl`; `outcome` is `hit` or `miss`.",
    ["retriever", "outcome"],
)


class _CachedResults(msgspec.Struct, frozen=True):
    """Search results in the cache; ``oldest`` is None if a read behind them has no moment."""

    chunks: list[PackedChunk]
    oldest: int | None
    provenance: frozenset[Part]
    index: tuple[str, str | None] | None = None
    """The version of the index that was searched, and its embedder."""


class _Call(NamedTuple):
    """A call of a retriever, or a search of an index by a function."""

    name: str
    arguments: Mapping[str, Any]
    began: float
    sla: timedelta | None = None
    record: bool = False

    @property
    def key(self) -> RetrievalKey:
        return (self.name, argument_key(self.arguments))

    def done(self) -> Reads | None:
        """Count the call, unless it is of a replay; return what tracks it, if it is tracked."""
        scope = current_scope()
        if not scope.is_isolated:
            RETRIEVALS.add(self.name, "done")
            SECONDS.labels(self.name).observe(time.perf_counter() - self.began)
        return scope.reads

    def tracked(self, results: _Results, *, failed: bool = False) -> TrackedRetrieval:
        return TrackedRetrieval(
            retriever=self.name,
            arguments=self.arguments,
            chunks=results.chunks,
            searched_at=from_micros(results.searched_at),
            oldest=None if results.oldest is None else from_micros(results.oldest),
            provenance=results.provenance,
            cache_hit=results.reads is None,
            latency_us=round((time.perf_counter() - self.began) * 1_000_000),
            failed=failed,
            searched=results.searched,
            sla_ms=None if self.sla is None else self.sla // _MILLISECOND,
            read=_read(results.reads) if self.record else None,
        )


class _Results(NamedTuple):
    """Search results, the time of the search, and its reads; None if they come from the cache."""

    chunks: list[Chunk]
    oldest: int | None
    provenance: frozenset[Part]
    searched_at: int
    reads: Reads | None
    searched: IndexSearched | None = None
    began: float = 0.0


def _read(reads: Reads | None) -> frozenset[FeatureKey]:
    features = () if reads is None else reads.features
    return frozenset((read.entity, read.feature, read.entity_id) for read in features)


_Search = Callable[[], Awaitable[_Results]]

_encode = msgspec.json.Encoder().encode

_decode = msgspec.json.Decoder(_CachedResults).decode


class Retrievers:
    """Runs retrievers: the functions of users, and searches of indexes."""

    def __init__(self, services: Services, reader: Reader, searches: IndexSearches) -> None:
        self._reader = reader
        self._cache = services.backends.cache
        self._vectors = services.backends.vectors
        self._calls = services.context_calls
        self._clock = services.clock
        self._searches = searches
        self._texts = FailureTexts(private=services.settings.record.is_private)
        self._flights: SingleFlight[_Results] = SingleFlight()
        self.run = services.interceptors.call("retrieve", self._run)

    async def _run(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """Return the retriever's results, or cached ones that are not older than its cache_ttl."""
        bound = bind(retriever, arguments, named)
        used, began = recordable(bound.arguments, "/arguments"), time.perf_counter()
        call = _Call(retriever.name, used, began, retriever.freshness_sla, retriever.record)
        try:
            with (
                OnFailure(partial(self._track_failure, call)),
                Raising(partial(RetrieverFailedError, retriever.name)),
            ):
                results = await self._results(retriever, call, bound)
        except HeadwaterError as error:
            if retriever.on_error == "raise" or isinstance(error, ReplayWriteError):
                raise
            problem = self._texts.message(error)
            log.warning("search failed; no results used", retriever=call.name, error=problem)
            return []
        reads = call.done()
        if reads is not None:
            if results.reads is not None:
                reads.track_all(results.reads)
            reads.track_retrieval(call.tracked(results))
        # Cached results are decoded for each caller, others may be shared.
        return results.chunks if results.reads is None else copied(results.chunks)

    async def search(
        self, index: IndexDef, text: str, options: SearchOptions, as_of: AsOf | None
    ) -> list[Chunk]:
        """Search an index directly; inside a context it is tracked like a retriever."""
        check_allowed_in_handler("search")
        check_index_limits(index)
        # The caller may change its filters later; the record has them as they were.
        if options.filters is not None:
            options = msgspec.structs.replace(options, filters=_copied(options.filters))
        query = IndexQuery(index, text, options)
        call = _Call(f"{SEARCH}{index.name}", _arguments(query, as_of), time.perf_counter())
        try:
            result = await self._searches.run(query, lambda: call.key, as_of)
        except HeadwaterError as error:
            if not is_mistake(error):
                self._track_failure(call)
            raise
        reads = call.done()
        if reads is not None:
            reads.track_retrieval(call.tracked(_found(query, result, call.began)))
        return copied(result.chunks) if isinstance(result, TrackedRetrieval) else result.chunks

    def _track_failure(self, call: _Call) -> None:
        if not current_scope().is_isolated:
            RETRIEVALS.add(call.name, "failed")
        none = _Results([], None, frozenset(), self._clock.micros(), Reads())
        current_reads().track_failure(call.tracked(none, failed=True))

    async def _results(
        self, retriever: RetrieverDef, call: _Call, bound: inspect.BoundArguments
    ) -> _Results:
        user_call, scope = UserCall(retriever, call.arguments), current_scope()
        if retriever.search is None:
            query = None
            recorded = None if scope.past is None else scope.past.results(call.key)
            if recorded is not None and recorded.read is not None:
                return await self._recorded(retriever, recorded)
            track_search(ReplayedSearch(retriever.name, "now"))
            search: _Search = partial(self._call_function, retriever, bound)
        else:
            query = await self._searches.resolve(retriever, retriever.search, call.arguments)
            search = partial(self._search_index, retriever, call, query)
        # A replay searches again, and its results may be of the past: they are not for others.
        if retriever.cache_ttl is None or scope.is_isolated:
            with calling(user_call):
                return await search()
        key = _key(retriever, call.arguments, query)
        cached = await self._cached(retriever, key, query)
        CACHE.add(retriever.name, "miss" if cached is None else "hit")
        if cached is not None:
            return cached
        drops = await self._drops(retriever)
        search = partial(self._search_and_cache, retriever, key, drops, search)
        if not scope.is_shareable:
            with calling(user_call):
                return await search()
        while True:
            # A search that began before values were erased is not shared with those after it.
            results = await self._flights.do(
                f"{drops} {key}", user_call, search, partial(_abandoned, retriever)
            )
            # A search that had begun earlier may have missed a change of its index since then.
            if results.began >= call.began or await self._is_current(results.provenance):
                return results

    async def _cached(
        self, retriever: RetrieverDef, key: str, query: IndexQuery | None
    ) -> _Results | None:
        """Return cached results; None if there are none, their index has changed, or on errors."""
        try:
            if query is None:
                cached, current = await self._cache.get(key), None
            else:
                # Together, because each takes a round trip.
                current, cached = await both(
                    self._current(query.declared.name), self._cache.get(key)
                )
            if cached is None:
                return None
            results = _decode(cached.value)
            if not await self._is_current(results.provenance - {current}):
                return None
            chunks, index = unpack(results.chunks), results.index
        except (HeadwaterError, ValueError) as error:
            log.warning(
                "could not read cached search results", retriever=retriever.name, error=str(error)
            )
            return None
        searched = None if query is None or index is None else query.searched(*index)
        return _Results(chunks, results.oldest, results.provenance, cached.kept_at, None, searched)

    async def _drops(self, retriever: RetrieverDef) -> int | None:
        """Return how often the cache was dropped so far; None if results cannot be cached."""
        try:
            return await self._cache.drops()
        except HeadwaterError as error:
            log.warning(
                "could not cache search results", retriever=retriever.name, error=str(error)
            )
            return None

    async def _is_current(self, provenance: frozenset[Part]) -> bool:
        """Return whether all indexes that were searched still have the same contents."""
        for part in provenance:
            if part[0] == "index" and part != await self._current(part[1]):
                return False
        return True

    async def _current(self, index: str) -> Part:
        """Return an index with its present version."""
        version = await self._vectors.version(index)
        return ("index", index, NO_VERSION if version is None else version.text)

    async def _search_and_cache(
        self, retriever: RetrieverDef, key: str, drops: int | None, search: _Search
    ) -> _Results:
        results = await search()
        reads = results.reads
        has_features = any(kind == "feature" for kind, *_ in results.provenance)
        if (
            retriever.cache_ttl is None
            or drops is None
            or (not current_scope().is_shareable and has_features)
            or (reads is not None and reads.has_failed)
        ):
            return results
        searched = results.searched
        index = None if searched is None else (searched.version, searched.embedder)
        cached = _CachedResults(pack(results.chunks), results.oldest, results.provenance, index)
        try:
            kept = Cached(_encode(cached), results.searched_at)
            await self._cache.put(key, kept, retriever.cache_ttl, drops=drops)
        except HeadwaterError as error:
            log.warning(
                "could not cache search results", retriever=retriever.name, error=str(error)
            )
        return results

    async def _call_function(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments
    ) -> _Results:
        """Call the function of a user."""
        searched_at, began = self._clock.micros(), time.perf_counter()
        convert = partial(to_chunks, limit=retriever.top_k)
        function = partial(retriever.function, *bound.args, **bound.kwargs)
        reads = Reads()
        with OnFailure(lambda: current_reads().track_all(reads)), tracking(reads):
            chunks = await self._calls.call(retriever, function, RetrieverTimeoutError, convert)
        oldest, provenance = _oldest(reads, searched_at), frozenset(reads.provenance)
        return _Results(chunks, oldest, provenance, searched_at, reads, began=began)

    async def _recorded(self, retriever: RetrieverDef, recorded: TrackedRetrieval) -> _Results:
        """Return the results of a record, and read again what the search had read."""
        track_search(ReplayedSearch(retriever.name, "results"))
        if recorded.failed:
            raise RetrieverFailedError(retriever.name, RuntimeError("the recorded search failed"))
        reads = Reads()
        with tracking(reads):
            for _, feature, entity_id in sorted(recorded.read or ()):
                await self._reader.read((feature,), (entity_id,))
        return _of_record(recorded, reads)

    async def _search_index(
        self, retriever: RetrieverDef, call: _Call, query: IndexQuery
    ) -> _Results:
        """Search the index in place of an empty function."""
        began = time.perf_counter()
        search = partial(self._searches.run, query, lambda: call.key)
        result = await self._calls.call(retriever, search, RetrieverTimeoutError)
        return _found(query, result, began)


def _of_record(recorded: TrackedRetrieval, reads: Reads) -> _Results:
    oldest = None if recorded.oldest is None else to_micros(recorded.oldest)
    chunks, provenance = list(recorded.chunks), frozenset(reads.provenance)
    searched_at = to_micros(recorded.searched_at)
    return _Results(chunks, oldest, provenance, searched_at, reads, recorded.searched)


def _found(query: IndexQuery, result: SearchResult | TrackedRetrieval, began: float) -> _Results:
    if isinstance(result, TrackedRetrieval):
        return _of_record(result, Reads())
    version = result.version
    if version is None:
        searched = query.searched(NO_VERSION, None)
    else:
        searched = query.searched(version.text, version.spec.embedder)
    return _Results(
        result.chunks,
        result.searched_at,
        frozenset({("index", searched.name, searched.version)}),
        result.searched_at,
        Reads(),
        searched,
        began,
    )


def _arguments(query: IndexQuery, as_of: AsOf | None) -> dict[str, Any]:
    """Return the arguments of a direct search that are not defaults."""
    options = msgspec.structs.asdict(query.options)
    given = {
        name: value
        for name, value in options.items()
        if name != "rerank" and value != _DEFAULTS[name]
    }
    arguments = {"query": query.text, **given}
    return arguments if as_of is None else {**arguments, "as_of": as_of}


_DEFAULTS = msgspec.structs.asdict(SearchOptions())


def _copied(filters: Any) -> Any:
    if isinstance(filters, Mapping):
        return {key: _copied(value) for key, value in filters.items()}
    if isinstance(filters, list | tuple):
        return [_copied(value) for value in filters]
    return set(filters) if isinstance(filters, set | frozenset) else filters


def _abandoned(retriever: RetrieverDef, error: BaseException) -> None:
    log.warning(
        "search failed after its callers had gone",
        retriever=retriever.name,
        error=type(error).__name__,
    )


def _oldest(reads: Reads, searched_at: int) -> int | None:
    moments = reads.current_at(reads.features, from_micros(searched_at))
    if moments.incomplete:
        return None
    return searched_at if moments.oldest is None else min(searched_at, to_micros(moments.oldest))


def _key(retriever: RetrieverDef, arguments: Mapping[str, Any], query: IndexQuery | None) -> str:
    """Return a cache key: equal for equal retrievers, arguments and queries, in every process."""
    searched = () if query is None else (query.text, query.options.filters)
    called = canonical(to_tagged([dict(arguments), *searched]))
    declared = f"{retriever.definition} {retriever.top_k} ".encode()
    return f"{CACHED_SEARCHES}{retriever.name}:{sha256(declared + called).hexdigest()}"
