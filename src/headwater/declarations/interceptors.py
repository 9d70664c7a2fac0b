"""Interceptors: code that runs around what an open store does, such as tracing and metrics.

They are asked once, when a store is opened, for the function to call in place of another. One that
has nothing to add returns that function itself, so that its calls cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

import msgspec

from headwater.declarations.contexts import ContextDef
from headwater.declarations.indexes import IndexDef
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import SearchOptions
from headwater.model.contexts import Overrides
from headwater.model.events import PublishResult
from headwater.model.lineage import Context
from headwater.model.values import ServiceEvent
from headwater.ports import BatchOutcome, IndexVersion, Subjects, no_subjects

P = ParamSpec("P")
T = TypeVar("T")

Step = Literal[
    "bus.publish_ticks",
    "bus.read",
    "online.get",
    "online.get_packed",
    "online.get_with_waiting",
    "online.get_state",
    "offline.as_of",
    "offline.latest",
    "offline.rows",
    "vectors.nearest",
    "vectors.matching",
    "records.append",
    "records.append_outcome",
    "event",
    "refresh",
    "feature",
    "retrieve",
    "embed",
    "fit",
]
"""A method of a port, or a part of handling an event or of assembling a context."""


class Publish(Protocol):
    """`Bus.publish`."""

    def __call__(
        self,
        events: Sequence[ServiceEvent],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
        positions: bool = False,
    ) -> Coroutine[Any, Any, list[PublishResult]]: ...


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The chunks that a search found, and the version of the index that it searched.

    The version is None if the index had none yet.
    """

    index: str
    version: IndexVersion | None
    query: str
    options: SearchOptions
    chunks: list[Chunk]
    searched_at: int


class Search(Protocol):
    """A search of an index, at present or in the past."""

    def __call__(
        self,
        index: IndexDef,
        query: str,
        options: SearchOptions,
        as_of: datetime | str | None = None,
    ) -> Coroutine[Any, Any, SearchResult]: ...


Commit = Callable[[BatchOutcome], Coroutine[Any, Any, None]]
"""`Bus.commit`."""
Assemble = Callable[
    [ContextDef, Sequence[Any], Mapping[str, Any], Overrides], Coroutine[Any, Any, Context]
]
"""The assembly of a context with positional and named arguments."""


Call = Callable[..., Coroutine[Any, Any, Any]]
"""An async function; in place of a step it gets the function of that step as its first argument."""


class Interceptor(Protocol):
    """Returns the function to call in place of each that it is given, by default the same."""

    steps: Mapping[Step, Call] = {}

    def publish(self, inner: Publish) -> Publish:
        return inner

    def commit(self, inner: Commit) -> Commit:
        return inner

    def call(
        self, step: Step, inner: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Intercept a step of one of the others, or on the way to it."""
        around = self.steps.get(step)
        return inner if around is None else partial(around, inner)

    def assemble(self, inner: Assemble) -> Assemble:
        return inner

    def search(self, inner: Search) -> Search:
        return inner


class Interceptors(Interceptor):
    """A chain of interceptors, of which the first one is the outermost."""

    def __init__(self, *chain: Interceptor) -> None:
        self._inner_first = chain[::-1]

    def publish(self, inner: Publish) -> Publish:
        for interceptor in self._inner_first:
            inner = interceptor.publish(inner)
        return inner

    def commit(self, inner: Commit) -> Commit:
        for interceptor in self._inner_first:
            inner = interceptor.commit(inner)
        return inner

    def call(
        self, step: Step, inner: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        for interceptor in self._inner_first:
            inner = interceptor.call(step, inner)
        return inner

    def assemble(self, inner: Assemble) -> Assemble:
        for interceptor in self._inner_first:
            inner = interceptor.assemble(inner)
        return inner

    def search(self, inner: Search) -> Search:
        for interceptor in self._inner_first:
            inner = interceptor.search(inner)
        return inner
