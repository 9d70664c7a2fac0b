"""Searching an index by meaning, by words or by both, at present or in the past."""

from __future__ import annotations

import asyncio
import inspect
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from headwater.core.clock import from_micros
from headwater.declarations.filters import parse_filters
from headwater.declarations.function_checks import is_async
from headwater.declarations.indexes import IndexDef
from headwater.declarations.interceptors import SearchResult
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import Rerank, SearchOptions
from headwater.errors import HeadwaterError, InvalidInputError, RerankFailedError
from headwater.features.call_scope import current_scope
from headwater.features.caller_limits import check_index_limits
from headwater.features.services import Services
from headwater.features.user_calls import LimitedCalls, Raising
from headwater.model.values import check_utf8
from headwater.ports import Embedding, Filter, Hit, Hits, IndexVersion, VectorQuery
from headwater.retrieval.analysis import terms
from headwater.retrieval.generations import Generations
from headwater.retrieval.past_versions import AsOf, version_at

LONGEST_QUERY = 100_000
_FEWEST_CANDIDATES = 50
_CANDIDATES_PER_RESULT = 4
# Of the different words of a query. Measured: see "Search quality" in the documentation.
_FUSED_SHARE = 2 / 3
# Comparing more chunks with each other takes longer than a thread hop.
_COMPARED_INLINE = 200
_IN_PROCESS = ("lexical/", "local/")
"""The beginnings of the names of embedders that are no provider and no function of the user."""
_FUSION = 60
"""The constant of reciprocal rank fusion: the larger, the less the first ranks count."""


class OutsideCallError(Exception):
    """A search needs a model outside of this process, and may not call it here."""


class _Searched(NamedTuple):
    """A version of an index, and the time in microseconds if it is to be searched as of it."""

    version: IndexVersion
    as_of: int | None


class Searcher:
    """Searches indexes."""

    def __init__(self, services: Services, generations: Generations) -> None:
        self._vectors, around = services.backends.vectors, services.interceptors
        self._nearest = around.call("vectors.nearest", self._vectors.nearest)
        self._matching = around.call("vectors.matching", self._vectors.matching)
        self.run = around.search(self._run)
        self._clock = services.clock
        self._calls = services.context_calls
        self._generations = generations
        self._last_versions: dict[str, IndexVersion] = {}
        """The generation of each index that the last search read."""

    async def warm_up(self, index: IndexDef) -> None:
        """Load what the first search of an index needs: modules, vectors, a model in this process.

        No provider and no function is called.
        """
        version = await self._vectors.version(index.name)
        spec = self._generations.declared(index) if version is None else version.spec
        await self._generations.warm_up(index, spec)
        # Also if nothing is indexed yet: a search that finds nothing loads the same modules.
        generation = 0 if version is None else version.generation
        query = VectorQuery(index=index.name, generation=generation, limit=1)
        unit = struct.pack(f"<{spec.dimensions}f", 1.0, *[0.0] * (spec.dimensions - 1))
        await self._vectors.nearest(replace(query, embedding=unit))
        await self._vectors.matching(replace(query, terms=("a",)))

    async def _run(
        self, index: IndexDef, query: str, options: SearchOptions, as_of: AsOf | None = None
    ) -> SearchResult:
        """Return the chunks that match a query best; inside an as_of replay those of the past."""
        check_index_limits(index)
        _check_query(query)
        filters = parse_filters(options.filters)
        searched_at = self._clock.micros()
        past = current_scope().past
        if as_of is None and past is not None:
            as_of = past.began
        search = partial(_Search, index, query, options, filters)
        if as_of is None:
            result = await self._present(search, index)
        else:
            result = await self._past(search, index, as_of)
        if result is None and as_of is None and options.mode != "text":
            self._generations.check(index)
        return SearchResult(
            index=index.name,
            version=None if result is None else result.version,
            query=query,
            options=options,
            chunks=[] if result is None else await self._ranked(result),
            searched_at=searched_at,
        )

    async def _present(self, search: _Searching, index: IndexDef) -> _SearchHits | None:
        """Search the active generation; it is asked for only if it may be another than before."""
        last_version = self._last_versions.get(index.name)
        if last_version is not None:
            searched = search(_Searched(last_version, None))
            hits = await self._hits(searched)
            if hits.is_active:
                return _SearchHits(
                    searched, replace(last_version, changed_at=hits.changed_at), hits.hits
                )
        version = await self._vectors.version(index.name)
        if version is None:
            return None
        searched = search(_Searched(version, None))
        hits = await self._hits(searched)
        if searched.options.mode != "text":
            self._last_versions[index.name] = version  # its embedder is available
        return _SearchHits(searched, replace(version, changed_at=hits.changed_at), hits.hits)

    async def _past(self, search: _Searching, index: IndexDef, as_of: AsOf) -> _SearchHits | None:
        version = await version_at(self._vectors, index, as_of, self._clock)
        if version is None:
            return None
        searched = search(_Searched(version, version.changed_at))
        return _SearchHits(searched, version, (await self._hits(searched)).hits)

    async def _ranked(self, result: _SearchHits) -> list[Chunk]:
        """Return the best of the chunks that were found, re-ranked and diversified as wanted."""
        search, hits = result.search, result.hits
        options = search.options
        chunks = list(map(_chunk, hits))
        relevance = [hit.score for hit in hits]
        if options.mode != "vector":
            relevance = scaled(relevance)
        if options.rerank is not None:
            if current_scope().is_offline:
                raise OutsideCallError
            reranker = Reranker(options.rerank, search.declared.name, self._calls)
            chunks = await reranker.rerank(search.query, chunks)
            # The order is the function's; its scores may be of any kind.
            relevance = [1 - place / len(chunks) for place in range(len(chunks))]
        if options.diversity > 0:
            chunks = await _diversified(chunks, relevance, hits, options)
        return chunks[: options.top_k]

    async def _hits(self, search: _Search) -> Hits:
        mode = search.options.mode
        if mode == "text":
            return await self._matching(search.matching())
        searched = search.searched
        embedder = self._generations.embedder(
            search.declared, searched.version.spec, is_active=searched.as_of is None
        )
        if current_scope().is_offline and not embedder.name.startswith(_IN_PROCESS):
            raise OutsideCallError
        (embedding,) = await self._generations.embed(embedder, [search.query], "query")
        nearest = await self._nearest(search.nearest(embedding, embedder.min_score))
        if mode == "vector":
            return nearest
        matching = await self._matching(search.matching())
        if matching.changed_at != nearest.changed_at:
            # The index has changed in between: both are to be of one version.
            version = replace(search.searched.version, changed_at=nearest.changed_at)
            earlier = search.searched._replace(version=version, as_of=nearest.changed_at)
            matching = await self._matching(search._replace(searched=earlier).matching())
        words = _at_least(matching.hits, embedding, search.options.min_score)
        return replace(nearest, hits=fuse(nearest.hits, words))


class _Search(NamedTuple):
    """A search that was checked."""

    declared: IndexDef
    query: str
    options: SearchOptions
    filters: Filter | None
    searched: _Searched

    def nearest(self, embedding: Embedding, usual: float | None) -> VectorQuery:
        """Return the query for the chunks whose meaning is nearest.

        ``usual`` is the smallest score that counts if the search has no minimum.
        """
        least = self.options.min_score
        return self._vector_query(embedding=embedding, min_score=usual if least is None else least)

    def matching(self) -> VectorQuery:
        """Return the query for the chunks that have the words.

        A ranking that is fused is of chunks that have most of them: a question's common words are
        in many chunks, which would displace the answers.
        """
        words = terms(self.query)
        is_fused = self.options.mode == "hybrid"
        enough = math.ceil(len(set(words)) * _FUSED_SHARE) if is_fused else 1
        return self._vector_query(terms=words, min_terms=enough)

    def _vector_query(self, **sought: Any) -> VectorQuery:
        options = self.options
        plain = options.mode != "hybrid" and options.rerank is None and options.diversity == 0
        candidates = max(_CANDIDATES_PER_RESULT * options.top_k, _FEWEST_CANDIDATES)
        compares = options.diversity > 0 or options.min_score is not None
        return VectorQuery(
            index=self.declared.name,
            generation=self.searched.version.generation,
            limit=options.top_k if plain else candidates,
            filters=self.filters,
            as_of=self.searched.as_of,
            with_embeddings=compares and not plain,
            **sought,
        )


_Searching = Callable[[_Searched], _Search]


class _SearchHits(NamedTuple):
    """The hits of a search, and the version that was searched."""

    search: _Search
    version: IndexVersion
    hits: Sequence[Hit]


def _check_query(query: object) -> None:
    if not isinstance(query, str) or not query.strip():
        raise InvalidInputError(f"the query of a search is a text with words, not {query!r:.80}")
    if len(query) > LONGEST_QUERY:
        raise InvalidInputError(
            f"the query of a search has {len(query)} characters, more than the maximum of "
            f"{LONGEST_QUERY}; shorten it"
        )
    check_utf8(query, "the query of a search")


def _at_least(hits: Sequence[Hit], query: Embedding, min_score: float | None) -> Sequence[Hit]:
    """Return the hits whose cosine with the query is at least this."""
    if min_score is None:
        return hits
    from headwater.retrieval.diversity import cosines  # noqa: PLC0415 - NumPy

    near = cosines(query, [hit.embedding or b"" for hit in hits])
    return [hit for hit, cosine in zip(hits, near, strict=True) if cosine >= min_score]


async def _diversified(
    chunks: Sequence[Chunk],
    relevance: Sequence[float],
    hits: Sequence[Hit],
    options: SearchOptions,
) -> list[Chunk]:
    from headwater.retrieval.diversity import diversified  # noqa: PLC0415 - NumPy

    by_id = {hit.id: hit.embedding or b"" for hit in hits}
    embeddings = [by_id[chunk.id or ""] for chunk in chunks]
    arguments = (relevance, embeddings, options.top_k, options.diversity)
    if len(chunks) <= _COMPARED_INLINE:
        places = diversified(*arguments)
    else:
        places = await asyncio.to_thread(diversified, *arguments)
    return [chunks[place] for place in places]


def _chunk(hit: Hit) -> Chunk:
    return Chunk(
        text=hit.text,
        id=hit.id,
        score=hit.score,
        metadata=dict(hit.metadata),
        document=hit.document,
        position=hit.position,
        content_hash=hit.content_hash,
        version=hit.version,
        indexed_at=from_micros(hit.indexed_at),
    )


def fuse(*rankings: Sequence[Hit]) -> list[Hit]:
    """Return hits by reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings.

    Of equal scores, the smaller chunk id comes first.
    """
    scores: dict[str, float] = {}
    hits: dict[str, Hit] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (_FUSION + rank)
            hits.setdefault(hit.id, hit)
    ordered = sorted(hits, key=lambda chunk_id: (-scores[chunk_id], chunk_id))
    return [replace(hits[chunk_id], score=scores[chunk_id]) for chunk_id in ordered]


def scaled(scores: Sequence[float]) -> list[float]:
    """Return positive scores as parts of the best one, so that they compare with cosines."""
    best = max(scores, default=1.0)
    return [score / best for score in scores]


class Reranker:
    """A user's function that ranks chunks for a query again; a sync one runs in a thread."""

    def __init__(self, function: Rerank, index: str, calls: LimitedCalls) -> None:
        self.name = _name_of(function)
        self.is_async = is_async(function)
        self.timeout = None
        self._function = function
        self._index = index
        self._calls = calls

    async def rerank(self, query: str, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Return the chunks in the order of the function, with its scores if it returns scores."""
        if not chunks:
            return []
        with Raising(lambda raised: self._error(f"raised {type(raised).__name__}: {raised}")):
            call = partial(self._function, query, list(chunks))
            returned = await self._calls.call(self, call, self._timed_out)
        if not isinstance(returned, Iterable) or isinstance(returned, str | bytes):
            raise self._error(f"returned {type(returned).__name__}; {_RETURN}")
        return self._ranked(chunks, list(returned))

    def _ranked(self, chunks: Sequence[Chunk], returned: list[Any]) -> list[Chunk]:
        if all(isinstance(chunk, Chunk) for chunk in returned):
            ids_given = {chunk.id for chunk in chunks}
            ids = [chunk.id for chunk in returned]
            if not ids_given.issuperset(ids) or len(set(ids)) < len(ids):
                raise self._error("returned a chunk that it was not given, or one twice")
            return returned
        scores = [self._score(score) for score in returned]
        if len(scores) != len(chunks):
            raise self._error(f"returned {len(scores)} scores for {len(chunks)} chunks; {_RETURN}")
        scored = [replace(chunk, score=score) for chunk, score in zip(chunks, scores, strict=True)]
        return sorted(scored, key=lambda chunk: -(chunk.score or 0.0))

    def _score(self, score: Any) -> float:
        try:
            number = math.nan if isinstance(score, str | bytes | Chunk) else float(score)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self._error(f"returned {score!r} as a score; {_RETURN}")
        return number

    def _timed_out(self, _: str, seconds: float) -> HeadwaterError:
        return self._error(f"timed out after {seconds:g} s")

    def _error(self, problem: str) -> RerankFailedError:
        return RerankFailedError(self._index, self.name, problem)


_RETURN = "it must return the chunks, best first, or one finite number for each chunk"


def _name_of(function: Callable[..., Any]) -> str:
    named = inspect.isfunction(function) or inspect.ismethod(function)
    return function.__name__ if named else type(function).__name__
