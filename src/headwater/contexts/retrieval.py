"""Running retrievers: results kept for a while, shared by all who ask the same, and noted."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.contexts.chunks import Packed, copied, pack, taken, unpack
from headwater.core.canonical_json import canonical, to_tagged
from headwater.core.clock import from_micros, to_micros
from headwater.core.logging import log
from headwater.core.values import Part
from headwater.declarations import Chunk, RetrieverDef
from headwater.errors import HeadwaterError, RetrieverFailedError, RetrieverTimeoutError
from headwater.features.arguments import bind, recordable
from headwater.features.frame import calling, current_frame, current_reads, tracking
from headwater.features.read_tracking import OnFailure, ReadTracker, TrackedRetrieval
from headwater.features.running_calls import Call
from headwater.features.services import Services
from headwater.features.single_flight import SingleFlight
from headwater.features.user_calls import Raising
from headwater.ports import Cached


class _Results(msgspec.Struct, frozen=True):
    """What a search found, what it rests on, and the moment of the oldest of that; None if none."""

    chunks: list[Packed]
    oldest: int | None
    provenance: frozenset[Part]


class _Found(NamedTuple):
    """Results, since when they are known, and what was read for them just now."""

    chunks: list[Chunk]
    oldest: int | None
    provenance: frozenset[Part]
    searched_at: int
    read: ReadTracker | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Results).decode


class Retrievers:
    """Searches by the user's own functions."""

    def __init__(self, services: Services) -> None:
        self._cache = services.backends.cache
        self._calls = services.context_calls
        self._clock = services.clock
        self._flights: SingleFlight[_Found] = SingleFlight()

    async def run(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """What the retriever finds, or found not longer ago than its cache keeps."""
        bound = bind(retriever, arguments, named)
        asked = recordable(bound.arguments, "/arguments")
        searched_at, began = self._clock.micros(), time.perf_counter()
        note = partial(_note, retriever, asked, began)
        nothing = _Found([], None, frozenset(), searched_at, ReadTracker())
        missed = OnFailure(lambda: current_reads().track_failure(note(nothing, failed=True)))
        failed = Raising(partial(RetrieverFailedError, retriever.name))
        with missed, failed:
            found = await self._found(retriever, bound, asked)
        reads = current_reads()
        if found.read is not None:
            reads.track_all(found.read)
        reads.track_retrieval(note(found))
        return copied(found.chunks)

    async def _found(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments, asked: Mapping[str, Any]
    ) -> _Found:
        call, frame = Call(retriever, asked), current_frame()
        # A replay searches again, and its results may be of the past: they are not for others.
        if retriever.cache_ttl is None or frame.is_isolated:
            with calling(call):
                return await self._search(retriever, bound)
        key = _key(retriever, asked)
        kept = await self._kept(retriever, key)
        if kept is not None:
            return kept
        search = partial(self._search_and_keep, retriever, bound, key)
        if frame.is_shareable:
            return await self._flights.do(key, call, search, partial(_abandoned, retriever))
        with calling(call):
            return await search()

    async def _kept(self, retriever: RetrieverDef, key: str) -> _Found | None:
        """Results of before; without a cache, or with one that another version wrote, none."""
        try:
            cached = await self._cache.get(key)
            if cached is None:
                return None
            kept = _decode(cached.value)
            return _Found(unpack(kept.chunks), kept.oldest, kept.provenance, cached.kept_at, None)
        except (HeadwaterError, ValueError) as error:
            log.warning(
                "could not read cached search results", retriever=retriever.name, error=str(error)
            )
            return None

    async def _search_and_keep(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments, key: str
    ) -> _Found:
        found = await self._search(retriever, bound)
        if retriever.cache_ttl is None or (
            not current_frame().is_shareable and _reads_features(found)
        ):
            return found
        value = _encode(_Results(pack(found.chunks), found.oldest, found.provenance))
        try:
            await self._cache.put(key, Cached(value, found.searched_at), retriever.cache_ttl)
        except HeadwaterError as error:
            log.warning(
                "could not cache search results", retriever=retriever.name, error=str(error)
            )
        return found

    async def _search(self, retriever: RetrieverDef, bound: inspect.BoundArguments) -> _Found:
        searched_at = self._clock.micros()
        take = partial(taken, most=retriever.top_k)
        read = ReadTracker()
        with OnFailure(lambda: current_reads().track_all(read)), tracking(read):
            chunks = await self._calls.call(retriever, bound, RetrieverTimeoutError, take)
        oldest, provenance = _oldest(read, searched_at), frozenset(read.provenance)
        return _Found(chunks, oldest, provenance, searched_at, read)


def _note(
    retriever: RetrieverDef,
    asked: Mapping[str, Any],
    began: float,
    found: _Found,
    *,
    failed: bool = False,
) -> TrackedRetrieval:
    return TrackedRetrieval(
        retriever=retriever.name,
        arguments=asked,
        chunks=found.chunks,
        searched_at=from_micros(found.searched_at),
        oldest=None if found.oldest is None else from_micros(found.oldest),
        provenance=found.provenance,
        cache_hit=found.read is None,
        latency_us=round((time.perf_counter() - began) * 1_000_000),
        failed=failed,
    )


def _reads_features(found: _Found) -> bool:
    return any(kind == "feature" for kind, *_ in found.provenance)


def _abandoned(retriever: RetrieverDef, error: BaseException) -> None:
    log.warning(
        "search failed after its callers had gone",
        retriever=retriever.name,
        error=type(error).__name__,
    )


def _oldest(read: ReadTracker, searched_at: int) -> int | None:
    if read.incomplete:
        return None
    return searched_at if read.oldest is None else min(searched_at, to_micros(read.oldest))


def _key(retriever: RetrieverDef, asked: Mapping[str, Any]) -> str:
    """The same for the same retriever and arguments, in every process."""
    question = canonical([retriever.name, retriever.top_k, to_tagged(dict(asked))])
    return f"{retriever.name}:{sha256(question).hexdigest()}"
