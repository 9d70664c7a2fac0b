"""Declared retrievers, the search of an index that an empty one stands for, and its options."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, get_args

import msgspec

from headwater.core.templates import Template, parse_template
from headwater.declarations.items import Chunk
from headwater.errors import InvalidInputError
from headwater.errors.hints import Location, nearest
from headwater.model.indexes import MAX_RESULTS, SearchMode

OnError = Literal["raise", "empty"]
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


class IndexSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search of an index, whose query and filters may refer to parameters and features.

    ``filters`` has a `Template` in place of each text with references; ``options`` has no filters.
    """

    index: str
    query: Template
    filters: Mapping[str, Any] | None
    options: SearchOptions

    @property
    def references(self) -> tuple[str, ...]:
        """The names that the query and the filters refer to, each once."""
        return tuple(dict.fromkeys([*self.query.references, *_references(self.filters)]))

    def resolved(self, values: Mapping[str, Any]) -> tuple[str, SearchOptions]:
        """Return the query and the options of one search.

        A value of a filter that is exactly one reference, without a format, keeps its type; other
        references are replaced by text.
        """
        query, filters = self.query.render(values), self.filters
        if filters is None:
            return query, self.options
        return query, msgspec.structs.replace(self.options, filters=_resolved(filters, values))


class RetrieverDef(msgspec.Struct, frozen=True, kw_only=True):
    """A declared retriever and its options.

    ``definition`` is the hash of its function's source, or of the search that replaces it.
    """

    name: str
    function: Callable[..., Any]
    is_async: bool
    signature: inspect.Signature
    definition: str | None
    location: Location
    description: str
    cache_ttl: timedelta | None
    top_k: int | None
    timeout: timedelta | None
    freshness_sla: timedelta | None = None
    on_error: OnError = "raise"
    search: IndexSearch | None = None
    record: bool = False
    """Whether records keep its results as a whole, so that replays need not search again."""


def parse_values(value: Any, location: Location) -> Any:
    """Return a value of a filter with a `Template` in place of each text with references."""
    if isinstance(value, str):
        template = parse_template(value, location)
        return template if template.references else template.literals[0]
    if isinstance(value, Mapping):
        return {key: parse_values(item, location) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [parse_values(item, location) for item in value]
    return value


def with_placeholders(value: Any) -> Any:
    """Return a value of a filter with some text in place of each reference."""
    if isinstance(value, Template):
        return "…"
    if isinstance(value, Mapping):
        return {
            key: ["…"] if key in _LISTS and isinstance(item, Template) else with_placeholders(item)
            for key, item in value.items()
        }
    return list(map(with_placeholders, value)) if isinstance(value, list) else value


_LISTS = ("$in", "$nin")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Template):
        yield from value.references
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _resolved(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Template):
        return value.value(values)
    if isinstance(value, Mapping):
        return {key: _resolved(item, values) for key, item in value.items()}
    return [_resolved(item, values) for item in value] if isinstance(value, list) else value
