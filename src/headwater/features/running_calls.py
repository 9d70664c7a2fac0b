"""Calls of user functions: their arguments, and the guard against recursion without an end."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from types import NoneType
from typing import Any, NamedTuple

from headwater.core.canonical_json import canonical, child, to_tagged
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import FeatureDef
from headwater.declarations.retrievers import RetrieverDef
from headwater.errors import InvalidInputError

_MAX_DEPTH = 32
"""How many contexts and retrievers may be nested."""

IMMUTABLE = frozenset({str, int, float, bool, NoneType})


class UserCall(NamedTuple):
    """A declared function and the arguments to call it with."""

    definition: FeatureDef | ContextDef | RetrieverDef
    arguments: Mapping[str, Any]

    @property
    def is_nestable(self) -> bool:
        """Whether the depth of such calls is limited: reads of features may form long chains."""
        return not isinstance(self.definition, FeatureDef)

    def repeats(self, other: UserCall) -> bool:
        """Return whether both call one function with the same arguments: 1 and 1.0 differ."""
        return self.definition is other.definition and (
            argument_key(self.arguments) == argument_key(other.arguments)
        )


def bind(
    definition: ContextDef | RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments by the names of their parameters, defaults included."""
    try:
        bound = definition.signature.bind(*arguments, **named)
    except TypeError as error:
        raise InvalidInputError(f"{definition.name!r}: {error}") from error
    bound.apply_defaults()
    return bound


def recordable(values: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """Return copies of the values; raise RecordValueError for one that a record cannot hold.

    A function may change the arguments that it gets; the record has them as they were.
    """
    for name, value in values.items():
        to_tagged(value, child(pointer, name))
    return copy_values(values)


def copy_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the values, which the caller may change."""
    return {name: copy_mutable(value) for name, value in values.items()}


def copy_mutable(value: Any) -> Any:
    """Return a copy of a value; the value itself if it cannot change."""
    return value if type(value) in IMMUTABLE else deepcopy(value)


def argument_key(arguments: Mapping[str, Any]) -> bytes:
    """Return bytes that are equal for equal arguments, in every process."""
    return canonical(to_tagged(dict(arguments)))


class RunningCall:
    """A call that has begun, its caller, and the calls that share its result."""

    __slots__ = ("call", "is_over", "parent", "sharers")

    def __init__(self, call: UserCall, parent: RunningCall | None) -> None:
        """Raise RecursionError if the call repeats one of its callers, or is nested too deeply."""
        # A task that a function leaves behind is no longer inside of the call that started it.
        callers = [] if parent is None else list(parent.stack())
        _check_recursion(callers, call)
        self.call = call
        self.parent = callers[0] if callers else None
        self.sharers: list[RunningCall] = []
        self.is_over = False

    @property
    def name(self) -> str:
        return self.call.definition.name

    def stack(self) -> Iterator[RunningCall]:
        """Yield the calls that are running, from this one outwards."""
        running: RunningCall | None = self
        while running is not None:
            if not running.is_over:
                yield running
            running = running.parent

    def share(self, waiting: RunningCall) -> None:
        """Let another call wait for this one; raise RecursionError if this one waits for it."""
        path = waiting.path_from(self)
        if path:
            raise _recursion([*path, self.name])
        self.sharers.append(waiting)

    def path_from(self, caller: RunningCall) -> list[str]:
        """Return the names of the calls from a caller to this one; empty if it does not wait."""
        seen = {id(self)}
        paths = [(self, [self.name])]
        while paths:
            running, names = paths.pop()
            if running is caller:
                return names
            for outer in (running.parent, *running.sharers):
                if outer is not None and id(outer) not in seen:
                    seen.add(id(outer))
                    paths.append((outer, [outer.name, *names]))
        return []


def _check_recursion(stack: list[RunningCall], call: UserCall) -> None:
    if any(running.call.repeats(call) for running in stack):
        raise _recursion([*(running.name for running in reversed(stack)), call.definition.name])
    nested = [running.name for running in stack if running.call.is_nestable]
    if len(nested) >= _MAX_DEPTH and call.is_nestable:
        raise RecursionError(
            f"{_MAX_DEPTH} contexts and retrievers are nested, the innermost is {nested[0]!r}; "
            "let the recursion end earlier"
        )


def _recursion(names: list[str]) -> RecursionError:
    return RecursionError(f"it calls itself with the same arguments: {' → '.join(names)}")
