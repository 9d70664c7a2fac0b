"""The options of a search in an index, which a call and a retriever have in common."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from headwater.declarations.items import Chunk
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest
from headwater.model.indexes import MAX_RESULTS, SearchMode

Rerank = Callable[[str, list[Chunk]], Any]
"""A function of the query and the chunks that returns chunks, best first, or one score for each."""


class SearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an index is searched; an option that is not valid raises InvalidInputError."""

    top_k: int = 5
    mode: SearchMode = "vector"
    filters: Mapping[str, Any] | None = None
    min_score: float | None = None
    diversity: float = 0.0
    rerank: Rerank | None = None

    def __post_init__(self) -> None:
        if type(self.top_k) is not int or not 1 <= self.top_k <= MAX_RESULTS:
            raise InvalidInputError(
                f"top_k must be a whole number from 1 to {MAX_RESULTS}, not "
                f"{reprlib.repr(self.top_k)}"
            )
        if self.mode not in get_args(SearchMode):
            hint = nearest(str(self.mode), get_args(SearchMode))
            raise InvalidInputError(f"unknown mode {self.mode!r} of a search; {hint}")
        if self.min_score is not None and not _is_within(self.min_score, -1, 1):
            raise InvalidInputError(
                f"min_score is a cosine from -1 to 1, not {reprlib.repr(self.min_score)}"
            )
        if self.min_score is not None and self.mode == "text":
            raise InvalidInputError(
                "min_score is a cosine, which mode='text' does not compute; leave it out, or use "
                "mode='vector' or mode='hybrid'"
            )
        if not _is_within(self.diversity, 0, 1):
            raise InvalidInputError(
                "diversity must be a number from 0 (only relevance counts) to 1, not "
                f"{reprlib.repr(self.diversity)}"
            )
        if self.rerank is not None and not callable(self.rerank):
            raise InvalidInputError(
                "rerank must be a function of the query and the chunks, not "
                f"{reprlib.repr(self.rerank)}"
            )


def _is_within(number: object, least: int, most: int) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return math.isfinite(number) and least <= number <= most
