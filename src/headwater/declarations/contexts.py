"""Contexts and retrievers once they are declared, and what one call has otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, Literal, ParamSpec, Protocol

import msgspec

from headwater.core.canonical_json import LARGEST
from headwater.core.durations import Duration, to_timedelta
from headwater.declarations.items import Chunk
from headwater.errors import DurationError, InvalidInputError
from headwater.errors.hints import Location
from headwater.records.lineage import Context

P = ParamSpec("P")

OnOverflow = Literal["error", "flag"]

# Ages are counted in whole milliseconds, and no record holds more of them.
_SHORTEST_SLA = timedelta(milliseconds=1)
_LONGEST_SLA = LARGEST * _SHORTEST_SLA


class ContextDef(msgspec.Struct, frozen=True, kw_only=True):
    """A context and everything that was said about how it is assembled."""

    name: str
    version: str | None
    function: Callable[..., Any]
    is_async: bool
    signature: inspect.Signature
    definition: str | None
    location: Location
    description: str
    max_tokens: int | None
    freshness_sla: timedelta | None
    freshness_strict: bool
    model: str | None
    separator: str
    on_overflow: OnOverflow
    backfill: bool
    timeout: timedelta | None


class RetrieverDef(msgspec.Struct, frozen=True, kw_only=True):
    """A search and everything that was said about it."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    signature: inspect.Signature
    location: Location
    description: str
    cache_ttl: timedelta | None
    top_k: int | None
    timeout: timedelta | None


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a context has otherwise than its declaration."""

    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: timedelta | msgspec.UnsetType | None = msgspec.UNSET
    interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class Assembles(Protocol):
    """The part of a store's runtime that declared contexts and retrievers call."""

    async def assemble(
        self,
        context: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context: ...

    async def retrieve(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]: ...


class ContextFunction(Generic[P]):
    """A declared context: call it to assemble, with the arguments of its function."""

    def __init__(
        self, runtime: Assembles, definition: ContextDef, overrides: Overrides | None = None
    ) -> None:
        update_wrapper(self, definition.function)
        self._runtime = runtime
        self._overrides = overrides or Overrides()
        self.definition = definition
        self.function = definition.function
        """The function as it was written, for a plain unit test."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Context]:
        return self._runtime.assemble(self.definition, args, kwargs, self._overrides)

    def __repr__(self) -> str:
        return f"<context {self.definition.name!r} at {self.definition.location}>"

    def options(
        self,
        *,
        max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET,
        freshness_sla: Duration | msgspec.UnsetType | None = msgspec.UNSET,
        interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> ContextFunction[P]:
        """The same context with another budget, SLA or interaction for the calls made of it.

        What is not given stays as it is; None takes it away.
        """
        changed = overrides(max_tokens, freshness_sla, interaction_ref, self._overrides)
        return ContextFunction(self._runtime, self.definition, changed)


class RetrieverFunction(Generic[P]):
    """A declared retriever: call it to search, with the arguments of its function."""

    def __init__(self, runtime: Assembles, definition: RetrieverDef) -> None:
        update_wrapper(self, definition.function)
        self._runtime = runtime
        self.definition = definition
        self.function = definition.function
        """The function as it was written, for a plain unit test."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, list[Chunk]]:
        return self._runtime.retrieve(self.definition, args, kwargs)

    def __repr__(self) -> str:
        return f"<retriever {self.definition.name!r} at {self.definition.location}>"


def overrides(
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET,
    freshness_sla: Duration | msgspec.UnsetType | None = msgspec.UNSET,
    interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET,
    before: Overrides | None = None,
) -> Overrides:
    """What one call wants otherwise, checked."""
    given: dict[str, Any] = {}
    if max_tokens is not msgspec.UNSET:
        if max_tokens is not None and not is_number(max_tokens):
            raise InvalidInputError(
                f"max_tokens is {max_tokens!r}; give a whole number above zero and below 2^53, or "
                "None"
            )
        given["max_tokens"] = max_tokens
    if freshness_sla is not msgspec.UNSET:
        given["freshness_sla"] = None if freshness_sla is None else sla_of(freshness_sla)
    if interaction_ref is not msgspec.UNSET:
        given["interaction_ref"] = reference(interaction_ref)
    return msgspec.structs.replace(before or Overrides(), **given)


def reference(given: object) -> Mapping[str, Any] | None:
    """An interaction's reference, refused unless it is made of names and values."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(map(_is_name, given)):
        raise InvalidInputError(
            "interaction_ref is a mapping such as {'call_id': …, 'turn_id': …, 'turn_index': …}, "
            f"not {given!r}"
        )
    return given


def _is_name(key: object) -> bool:
    # What begins with a dollar is a tag in a record.
    return type(key) is str and not key.startswith("$")


def is_number(given: object) -> bool:
    """Says whether this is a whole number above zero that a record can hold."""
    return type(given) is int and 1 <= given <= LARGEST


def is_text(given: object) -> bool:
    """Says whether this is text that a record can hold."""
    return type(given) is str and given.encode(errors="replace").decode() == given


def sla_of(given: Duration) -> timedelta:
    """A freshness SLA, refused if no age can be held against it."""
    sla = to_timedelta(given)
    if sla < _SHORTEST_SLA:
        raise DurationError(given)
    if sla > _LONGEST_SLA:
        raise InvalidInputError(
            f"{given!r} is longer than any record can say; None asks for no freshness at all"
        )
    return sla
