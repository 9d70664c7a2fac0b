"""Running retrievers: results are cached, shared by concurrent callers, and tracked."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.core.canonical_json import canonical, to_tagged
from headwater.core.clock import from_micros, to_micros
from headwater.core.logging import log
from headwater.core.values import Part
from headwater.declarations import Chunk, RetrieverDef
from headwater.errors import HeadwaterError, RetrieverFailedError, RetrieverTimeoutError
from headwater.features.frame import calling, current_frame, current_reads, tracking
from headwater.features.read_tracking import OnFailure, Reads, TrackedRetrieval
from headwater.features.running_calls import UserCall, bind, recordable
from headwater.features.services import Services
from headwater.features.single_flight import SingleFlight
from headwater.features.user_calls import Raising
from headwater.ports import Cached
from headwater.retrieval.results import PackedChunk, copied, pack, to_chunks, unpack

CACHED_SEARCHES = "search:"
"""The beginning of the cache keys of all searches."""


class _CachedResults(msgspec.Struct, frozen=True):
    """Search results in the cache; ``oldest`` is None if a read behind them has no moment."""

    chunks: list[PackedChunk]
    oldest: int | None
    provenance: frozenset[Part]


class _Results(NamedTuple):
    """Search results, the time of the search, and its reads; None if they come from the cache."""

    chunks: list[Chunk]
    oldest: int | None
    provenance: frozenset[Part]
    searched_at: int
    reads: Reads | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_CachedResults).decode


class Retrievers:
    """Runs the functions of retrievers."""

    def __init__(self, services: Services) -> None:
        self._cache = services.backends.cache
        self._calls = services.context_calls
        self._clock = services.clock
        self._flights: SingleFlight[_Results] = SingleFlight()

    async def run(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """Return the retriever's results, or cached ones that are not older than its cache_ttl."""
        bound = bind(retriever, arguments, named)
        arguments_used = recordable(bound.arguments, "/arguments")
        tracked = partial(_tracked, retriever, arguments_used, time.perf_counter())
        none = _Results([], None, frozenset(), self._clock.micros(), Reads())
        track_failure = OnFailure(lambda: current_reads().track_failure(tracked(none, failed=True)))
        translate_error = Raising(partial(RetrieverFailedError, retriever.name))
        with track_failure, translate_error:
            results = await self._results(retriever, bound, arguments_used)
        reads = current_reads()
        if results.reads is not None:
            reads.track_all(results.reads)
        reads.track_retrieval(tracked(results))
        return copied(results.chunks)

    async def _results(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments, arguments: Mapping[str, Any]
    ) -> _Results:
        call, frame = UserCall(retriever, arguments), current_frame()
        # A replay searches again, and its results may be of the past: they are not for others.
        if retriever.cache_ttl is None or frame.is_isolated:
            with calling(call):
                return await self._search(retriever, bound)
        key = _key(retriever, arguments)
        cached = await self._cached(retriever, key)
        if cached is not None:
            return cached
        search = partial(self._search_and_cache, retriever, bound, key)
        if frame.is_shareable:
            return await self._flights.do(key, call, search, partial(_abandoned, retriever))
        with calling(call):
            return await search()

    async def _cached(self, retriever: RetrieverDef, key: str) -> _Results | None:
        """Return cached results; None if there are none or the cache cannot be read."""
        try:
            cached = await self._cache.get(key)
            if cached is None:
                return None
            results = _decode(cached.value)
            chunks = unpack(results.chunks)
            return _Results(chunks, results.oldest, results.provenance, cached.kept_at, None)
        except (HeadwaterError, ValueError) as error:
            log.warning(
                "could not read cached search results", retriever=retriever.name, error=str(error)
            )
            return None

    async def _search_and_cache(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments, key: str
    ) -> _Results:
        results = await self._search(retriever, bound)
        if retriever.cache_ttl is None or (
            not current_frame().is_shareable and _has_read_features(results)
        ):
            return results
        value = _encode(_CachedResults(pack(results.chunks), results.oldest, results.provenance))
        try:
            await self._cache.put(key, Cached(value, results.searched_at), retriever.cache_ttl)
        except HeadwaterError as error:
            log.warning(
                "could not cache search results", retriever=retriever.name, error=str(error)
            )
        return results

    async def _search(self, retriever: RetrieverDef, bound: inspect.BoundArguments) -> _Results:
        searched_at = self._clock.micros()
        convert = partial(to_chunks, limit=retriever.top_k)
        reads = Reads()
        with OnFailure(lambda: current_reads().track_all(reads)), tracking(reads):
            chunks = await self._calls.call(retriever, bound, RetrieverTimeoutError, convert)
        oldest, provenance = _oldest(reads, searched_at), frozenset(reads.provenance)
        return _Results(chunks, oldest, provenance, searched_at, reads)


def _tracked(
    retriever: RetrieverDef,
    arguments: Mapping[str, Any],
    began: float,
    results: _Results,
    *,
    failed: bool = False,
) -> TrackedRetrieval:
    return TrackedRetrieval(
        retriever=retriever.name,
        arguments=arguments,
        chunks=results.chunks,
        searched_at=from_micros(results.searched_at),
        oldest=None if results.oldest is None else from_micros(results.oldest),
        provenance=results.provenance,
        cache_hit=results.reads is None,
        latency_us=round((time.perf_counter() - began) * 1_000_000),
        failed=failed,
    )


def _has_read_features(results: _Results) -> bool:
    return any(kind == "feature" for kind, *_ in results.provenance)


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


def _key(retriever: RetrieverDef, arguments: Mapping[str, Any]) -> str:
    """Return a cache key: equal for equal retrievers and arguments, in every process."""
    call = canonical([retriever.name, retriever.top_k, to_tagged(dict(arguments))])
    return f"{CACHED_SEARCHES}{retriever.name}:{sha256(call).hexdigest()}"
