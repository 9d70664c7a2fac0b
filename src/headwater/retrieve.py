"""Running retrievers: results kept for a while, shared by all who ask the same, and noted."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.calls import Limits, Raising
from headwater.canonical import canonical, to_tagged
from headwater.clock import Clock, from_micros, to_micros
from headwater.contexts import Chunk, RetrieverDef
from headwater.errors import (
    HeadwaterError,
    InvalidInputError,
    RetrieverFailedError,
    RetrieverTimeoutError,
)
from headwater.logs import log
from headwater.ports import Cache, Cached
from headwater.scope import RetrievalNote, Scope, bind, note_all, note_retrieval, recordable
from headwater.values import Part
from headwater.workspace import current_moment, noting


class _Results(msgspec.Struct, frozen=True):
    """What a search found, what it rests on, and the moment of the oldest of that; None if none."""

    chunks: list[Chunk]
    oldest: int | None
    made_of: frozenset[Part] = frozenset()


class _Found(NamedTuple):
    """Results, since when they are known, and what was read for them just now."""

    results: _Results
    searched_at: int
    read: Scope | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Results).decode


class Retrieve:
    """Searches by the user's own functions."""

    def __init__(self, cache: Cache, limits: Limits, clock: Clock) -> None:
        self._cache = cache
        self._limits = limits
        self._clock = clock
        self._running: dict[tuple[int, str], asyncio.Future[_Found]] = {}

    async def run(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """What the retriever finds, or found not longer ago than its cache keeps."""
        bound = bind(retriever, arguments, named)
        asked = recordable(bound.arguments, "/arguments")
        began = time.perf_counter()
        found = await self._found(retriever, bound, asked)
        took = time.perf_counter() - began
        if found.read is not None:
            note_all(found.read)
        oldest = found.results.oldest
        note_retrieval(
            RetrievalNote(
                retriever=retriever.name,
                arguments=asked,
                chunks=found.results.chunks,
                searched_at=from_micros(found.searched_at),
                oldest=None if oldest is None else from_micros(oldest),
                made_of=found.results.made_of,
                cache_hit=found.read is None,
                latency_us=round(took * 1_000_000),
            )
        )
        return list(found.results.chunks)

    async def _found(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments, asked: Mapping[str, Any]
    ) -> _Found:
        # A look at a past moment finds what nobody else is to find.
        if retriever.cache_ttl is None or current_moment() is not None:
            return await self._search(retriever, bound)
        key = _key(retriever, asked)
        kept = await self._kept(retriever, key)
        if kept is not None:
            return kept
        place = (id(asyncio.get_running_loop()), key)
        running = self._running.get(place)
        if running is None:
            running = asyncio.ensure_future(self._search_and_keep(retriever, bound, key))
            self._running[place] = running
            running.add_done_callback(lambda _: self._running.pop(place, None))
        # One who gives up must not take the results from the others.
        return await asyncio.shield(running)

    async def _kept(self, retriever: RetrieverDef, key: str) -> _Found | None:
        """Results of before; without a cache, or with one that another version wrote, none."""
        try:
            cached = await self._cache.get(key)
            return None if cached is None else _Found(_decode(cached.value), cached.kept_at, None)
        except (HeadwaterError, msgspec.MsgspecError) as error:
            log.warning("kept results not read", retriever=retriever.name, error=str(error))
            return None

    async def _search_and_keep(
        self, retriever: RetrieverDef, bound: inspect.BoundArguments, key: str
    ) -> _Found:
        found = await self._search(retriever, bound)
        try:
            value = _encode(found.results)
            # As the next one gets it, so that nothing depends on who was first.
            found = found._replace(results=_decode(value))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise InvalidInputError(
                f"retriever {retriever.name!r} found what cannot be kept: {error}; its cache_ttl "
                "needs metadata that is plain JSON"
            ) from error
        if retriever.cache_ttl is not None:
            try:
                await self._cache.put(key, Cached(value, found.searched_at), retriever.cache_ttl)
            except HeadwaterError as error:
                log.warning("results not kept", retriever=retriever.name, error=str(error))
        return found

    async def _search(self, retriever: RetrieverDef, bound: inspect.BoundArguments) -> _Found:
        searched_at = self._clock.micros()
        with noting(Scope()) as read, Raising(partial(RetrieverFailedError, retriever.name)):
            given = await self._limits.call(retriever, bound, RetrieverTimeoutError)
        chunks = [_chunk(retriever, item) for item in _listed(retriever, given)]
        oldest, made_of = _oldest(read, searched_at), frozenset(read.made_of)
        return _Found(_Results(chunks[: retriever.top_k], oldest, made_of), searched_at, read)


def _oldest(read: Scope, searched_at: int) -> int | None:
    if read.incomplete:
        return None
    return searched_at if read.oldest is None else min(searched_at, to_micros(read.oldest))


def _key(retriever: RetrieverDef, asked: Mapping[str, Any]) -> str:
    """The same for the same retriever and arguments, in every process."""
    question = canonical([retriever.name, retriever.top_k, to_tagged(dict(asked))])
    return f"{retriever.name}:{sha256(question).hexdigest()}"


def _listed(retriever: RetrieverDef, found: object) -> Iterable[object]:
    if found is None:
        return ()
    if isinstance(found, str | Mapping | Chunk) or not isinstance(found, Iterable):
        raise InvalidInputError(
            f"retriever {retriever.name!r} must return a list of texts, mappings with 'text' or "
            f"chunks, not {type(found).__name__}"
        )
    return found


def _chunk(retriever: RetrieverDef, item: object) -> Chunk:
    if isinstance(item, Chunk):
        return item
    try:
        if isinstance(item, str):
            return Chunk(text=item)
        return msgspec.convert(item, Chunk, from_attributes=True)
    except (InvalidInputError, msgspec.ValidationError) as error:
        raise InvalidInputError(
            f"retriever {retriever.name!r} returned {type(item).__name__} that is no chunk: "
            f"{error}; return texts, mappings with 'text', or headwater.Chunk"
        ) from error
