"""Ranking found chunks: fusing two rankings, and re-ranking by a function of the user."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from headwater.declarations.function_checks import is_async
from headwater.declarations.items import Chunk
from headwater.declarations.search_options import Rerank
from headwater.errors import HeadwaterError, RerankFailedError
from headwater.features.user_calls import LimitedCalls, Raising
from headwater.ports import Hit

_FUSION = 60
"""The constant of reciprocal rank fusion: the larger, the less the first ranks count."""


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
        with Raising(self._raised):
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

    def _raised(self, raised: Exception) -> HeadwaterError:
        return self._error(f"raised {type(raised).__name__}: {raised}")

    def _error(self, problem: str) -> RerankFailedError:
        return RerankFailedError(self._index, self.name, problem)


_RETURN = "it must return the chunks, best first, or one finite number for each chunk"


def _name_of(function: Callable[..., Any]) -> str:
    named = inspect.isfunction(function) or inspect.ismethod(function)
    return function.__name__ if named else type(function).__name__
