"""Declared contexts and retrievers, and the options of one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, Literal, ParamSpec, Protocol

import msgspec

from headwater.core.canonical_json import LARGEST
from headwater.core.durations import Duration, format_duration, to_timedelta
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import RetrieverDef
from headwater.errors import DurationError, InvalidInputError, LooserOverrideError
from headwater.errors.hints import Location
from headwater.model.contexts import Overrides
from headwater.model.lineage import Context

P = ParamSpec("P")

OnOverflow = Literal["error", "flag"]
Count = Literal["local", "provider"]
"""Who counts the tokens of a request: this process, or in addition the provider."""
Limit = Literal["max_tokens", "freshness_sla"]
"""An option that callers may tighten."""

# Ages are whole milliseconds, and a record holds none that is larger.
_SHORTEST_SLA = timedelta(milliseconds=1)
_LONGEST_SLA = LARGEST * _SHORTEST_SLA


class ContextDef(msgspec.Struct, frozen=True, kw_only=True):
    """A declared context and its options."""

    name: str
    version: str | None
    function: Callable[..., Any]
    is_async: bool
    signature: inspect.Signature
    definition: str | None = None
    location: Location
    description: str = ""
    max_tokens: int | None = None
    freshness_sla: timedelta | None = None
    freshness_strict: bool = False
    model: str | None
    separator: str = "\n\n"
    on_overflow: OnOverflow = "error"
    backfill: bool = False
    timeout: timedelta | None = None
    allow_looser: tuple[Limit, ...] = ()
    max_output: int | None = None
    count: Count = "local"


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
        """The decorated function itself, for a unit test."""

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
        """Return the same context with another budget, SLA or interaction for its calls.

        An option that is not passed stays unchanged; None removes it. A call raises
        `LooserOverrideError` if the budget or the SLA is looser than the declaration allows.
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
        """The decorated function itself, for a unit test."""

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
    """Return checked options of one call, in addition to those of ``before``."""
    changes: dict[str, Any] = {}
    if max_tokens is not msgspec.UNSET:
        if max_tokens is not None and not is_number(max_tokens):
            raise InvalidInputError(
                f"max_tokens is {max_tokens!r}; pass a whole number above zero and below 2^53, or "
                "None"
            )
        changes["max_tokens"] = max_tokens
    if freshness_sla is not msgspec.UNSET:
        changes["freshness_sla"] = None if freshness_sla is None else sla_of(freshness_sla)
    if interaction_ref is not msgspec.UNSET:
        changes["interaction_ref"] = reference(interaction_ref)
    return msgspec.structs.replace(before or Overrides(), **changes)


def check_not_looser(definition: ContextDef, overrides: Overrides) -> None:
    """Raise `LooserOverrideError` if a call loosens a limit that its context does not let it."""

    def sla_text(sla: timedelta) -> str:
        return format_duration(sla // _SHORTEST_SLA)

    limits: tuple[tuple[Limit, Any, Any, Callable[[Any], str]], ...] = (
        ("max_tokens", overrides.max_tokens, definition.max_tokens, str),
        ("freshness_sla", overrides.freshness_sla, definition.freshness_sla, sla_text),
    )
    for option, value, declared, text in limits:
        if value is msgspec.UNSET or declared is None or option in definition.allow_looser:
            continue
        if value is None or value > declared:
            shown = "None" if value is None else text(value)
            raise LooserOverrideError(definition.name, option, shown, text(declared))


def reference(value: object) -> Mapping[str, Any] | None:
    """Return a checked reference of an interaction."""
    if value is None:
        return None
    # A key that begins with a dollar is a tag in a record.
    if not isinstance(value, Mapping) or not all(
        type(key) is str and not key.startswith("$") for key in value
    ):
        raise InvalidInputError(
            "interaction_ref is a mapping such as {'call_id': …, 'turn_id': …, 'turn_index': …}, "
            f"not {value!r}"
        )
    return value


def is_number(value: object) -> bool:
    """Return whether this is a whole number above zero that a record can hold."""
    return type(value) is int and 1 <= value <= LARGEST


def is_text(value: object) -> bool:
    """Return whether this is text that a record can hold."""
    return type(value) is str and value.encode(errors="replace").decode() == value


def sla_of(duration: Duration) -> timedelta:
    """Return a freshness SLA; raise if it is shorter or longer than any age can be."""
    sla = to_timedelta(duration)
    if sla < _SHORTEST_SLA:
        raise DurationError(duration)
    if sla > _LONGEST_SLA:
        raise InvalidInputError(
            f"{duration!r} is longer than a record can hold; pass None for no SLA"
        )
    return sla
