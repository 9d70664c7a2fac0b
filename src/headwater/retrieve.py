"""Running retrievers: results kept for a while, shared by all who ask the same, and noted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.canonical import canonical, to_tagged
from headwater.clock import Clock, from_micros
from headwater.contexts import Chunk, RetrieverDef
from headwater.errors import HeadwaterError, InvalidInputError, RetrieverFailedError
from headwater.logs import log
from headwater.offload import Offload
from headwater.ports import Cache, Cached
from headwater.scope import RetrievalNote, current_scope
from headwater.workspace import current_reads

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Chunk]).decode


class _Found(NamedTuple):
    chunks: list[Chunk]
    searched_at: int
    cache_hit: bool


class Retrieve:
    """Searches by the user's own functions."""

    def __init__(self, cache: Cache, offload: Offload, clock: Clock) -> None:
        self._cache = cache
        self._offload = offload
        self._clock = clock
        self._running: dict[tuple[int, str], asyncio.Future[_Found]] = {}

    async def run(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """What the retriever finds, or found not longer ago than its cache keeps."""
        bound = _bound(retriever, arguments, named)
        began = time.perf_counter()
        found = await self._found(retriever, bound)
        searched_at = from_micros(found.searched_at)
        scope = current_scope()
        if scope is not None:
            took = round((time.perf_counter() - began) * 1_000_000)
            note = (retriever.name, bound, found.chunks, searched_at, found.cache_hit, took)
            scope.note_retrieval(RetrievalNote(*note))
        elif (reads := current_reads()) is not None:
            reads.note_moment(searched_at)
        return list(found.chunks)

    async def _found(self, retriever: RetrieverDef, bound: Mapping[str, Any]) -> _Found:
        if retriever.cache_ttl is None:
            return await self._search(retriever, bound)
        key = _key(retriever, bound)
        kept = await self._cache.get(key)
        if kept is not None:
            return _Found(_decode(kept.value), kept.kept_at, cache_hit=True)
        place = (id(asyncio.get_running_loop()), key)
        running = self._running.get(place)
        if running is None:
            running = asyncio.ensure_future(self._search_and_keep(retriever, bound, key))
            self._running[place] = running
            running.add_done_callback(lambda _: self._running.pop(place, None))
        # One who gives up must not take the results from the others.
        return await asyncio.shield(running)

    async def _search_and_keep(
        self, retriever: RetrieverDef, bound: Mapping[str, Any], key: str
    ) -> _Found:
        found = await self._search(retriever, bound)
        if retriever.cache_ttl is not None:
            try:
                cached = Cached(_encode(found.chunks), found.searched_at)
                await self._cache.put(key, cached, retriever.cache_ttl)
            except HeadwaterError as error:
                log.warning("results not kept", retriever=retriever.name, error=str(error))
        return found

    async def _search(self, retriever: RetrieverDef, bound: Mapping[str, Any]) -> _Found:
        searched_at = self._clock.micros()
        call = retriever.signature.bind(**bound)
        try:
            if retriever.is_async:
                found = await retriever.function(*call.args, **call.kwargs)
            else:
                found = await self._offload.call(
                    lambda: retriever.function(*call.args, **call.kwargs)
                )
        except HeadwaterError:
            raise
        except Exception as error:
            raise RetrieverFailedError(retriever.name, error) from error
        chunks = [_chunk(retriever, item) for item in _listed(retriever, found)]
        return _Found(chunks[: retriever.top_k], searched_at, cache_hit=False)


def _bound(
    retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        bound = retriever.signature.bind(*arguments, **named)
    except TypeError as error:
        raise InvalidInputError(f"retriever {retriever.name!r}: {error}") from error
    bound.apply_defaults()
    return dict(bound.arguments)


def _key(retriever: RetrieverDef, bound: Mapping[str, Any]) -> str:
    """The same for the same retriever and arguments, in every process."""
    asked = canonical([retriever.name, retriever.top_k, to_tagged(dict(bound))])
    return f"{retriever.name}:{sha256(asked).hexdigest()}"


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
    if isinstance(item, str):
        return Chunk(text=item)
    try:
        return msgspec.convert(item, Chunk, from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidInputError(
            f"retriever {retriever.name!r} returned {type(item).__name__} that is no chunk: "
            f"{error}; return texts, mappings with 'text', or headwater.Chunk"
        ) from error
