"""The decorator ``event``, and the events that the annotation of a handler names.

Declaring runs nothing: it checks the class, reports errors with file and line, and adds a
declaration to the store.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType, UnionType
from typing import (
    Any,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from msgspec.inspect import CustomType, DataclassType, StructType, TypedDictType, type_info

from headwater.core.codec import (
    PydanticModel,
    check_supported,
    decode_custom,
    leaves_defaults,
)
from headwater.declarations.checks import Declaration, calling_frame, location_of_frame
from headwater.declarations.entity_decorator import DeclaringStore
from headwater.declarations.events import Event, EventDef
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, EventError
from headwater.model.values import INTERNAL, ServiceEvent

T = TypeVar("T")

_MADE = ("__dataclass_fields__", "__attrs_attrs__")
"""Attributes of a class whose constructor was made from its annotations."""

_NOT_PLAIN = (msgspec.Struct, PydanticModel, Enum, tuple, list, dict, set, str, bytes, int, float)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def event(store: DeclaringStore, event_type: str, /) -> Callable[[type[T]], type[T]]:
    """Declare the decorated class as the payload of events of a type.

    Its annotations say which fields the payload has; one with a default is optional, and others
    than these are allowed. Events that do not fit are refused when they are published. A handler
    with ``event: Event[Purchase]`` gets an instance as ``event.payload``.

    A plain class becomes a frozen dataclass whose fields are passed by name. A dataclass, a
    TypedDict, a msgspec.Struct or a pydantic model stays as it is.

    >>> @event(store, "refund")
    ... class Refund:
    ...     amount: float
    ...     reason: str = ""
    >>> await store.publish("refund", "ada", Refund(amount=5.0))
    ServiceEvent(event_type='refund', entity_id='ada', payload={'amount': 5.0, 'reason': ''}, ...)
    """
    caller = calling_frame()
    declaration = Declaration("event", event_type, location_of_frame(caller))
    if isinstance(store, str | type) or not isinstance(event_type, str):
        raise DeclarationError(
            "@event needs the store and the type of the events; write @event(store, 'purchase') "
            "or @store.event('purchase')",
            declaration.location,
        )
    _check_type(declaration)

    def declare(cls: type[T]) -> type[T]:
        _make(declaration, cls, caller)
        _check_fields(declaration, cls)
        declared = EventDef(
            event_type,
            cls,
            declaration.location,
            msgspec.json.Decoder(cls, dec_hook=decode_custom),
            leaves_defaults(cls),
            _description(cls),
        )
        runtime_of(store).registry.add_event(declared)
        return cls

    return declare


def _check_type(declaration: Declaration) -> None:
    if declaration.name.startswith(INTERNAL):
        raise declaration.error(f"event types that begin with {INTERNAL!r} are reserved")
    try:
        ServiceEvent(declaration.name, "id")
    except EventError as error:
        raise declaration.error(error.problem) from error


def _make(declaration: Declaration, cls: Any, caller: FrameType | None) -> None:
    """Make a dataclass of a plain class."""
    if not isinstance(cls, type):
        raise declaration.error(f"{cls!r} cannot be declared; decorate a class")
    is_plain = not is_typeddict(cls) and not issubclass(cls, _NOT_PLAIN)
    if not is_plain or any(attribute in vars(cls) for attribute in _MADE):
        return
    names = {**(caller.f_locals if caller else {}), cls.__name__: cls}
    try:
        hints = get_type_hints(cls, localns=names, include_extras=True)
        own = inspect.get_annotations(cls)
        # Later they are resolved by the names of the module alone.
        cls.__annotations__ = {name: hints[name] for name in own}
        dataclass(frozen=True, kw_only=True)(cls)
    except (NameError, TypeError, ValueError) as error:
        raise declaration.error(f"its annotations cannot be used: {error}") from error


def _check_fields(declaration: Declaration, cls: type) -> None:
    try:
        check_supported(cls)
        kind = type_info(cls)
    except (NameError, TypeError) as error:
        raise declaration.error(f"its annotations cannot be used: {error}") from error
    is_array = isinstance(kind, StructType) and kind.array_like
    if is_array or not isinstance(kind, DataclassType | StructType | TypedDictType | CustomType):
        raise declaration.error(
            f"a payload is a JSON object, and {cls.__name__} is not; decorate a class with "
            "annotated fields, a dataclass, a TypedDict, a msgspec.Struct or a pydantic model"
        )


def _description(cls: type) -> str:
    """Return the docstring of a class, unless it is the one that ``dataclass`` makes."""
    text = inspect.getdoc(cls) if cls.__doc__ else ""
    return "" if text is None or text.startswith(f"{cls.__name__}(") else text


def typed_events(
    checks: Declaration, declared: Mapping[str, EventDef], annotation: Any, triggers: Iterable[str]
) -> dict[str, EventDef]:
    """Return the event types whose payloads a handler takes as instances of their classes.

    These are those that the annotation of its event names: ``Event[Purchase]``, or several, as in
    ``Event[Purchase | Refund]``, where ``dict[str, Any]`` stands for types that are not declared.
    """
    named = [each for each in _members(annotation) if (get_origin(each) or each) is Event]
    kinds = [kind for each in named for arg in get_args(each) or (Any,) for kind in _members(arg)]
    typed: dict[str, EventDef] = {}
    for event_type in triggers if named else ():
        found = declared.get(event_type)
        if found is not None and (found.payload in kinds or Any in kinds):
            typed[event_type] = found
        elif found is not None or not {dict, Any} & {get_origin(kind) or kind for kind in kinds}:
            what = f"is {found.payload.__name__}" if found else "is not declared"
            text = inspect.formatannotation(annotation)
            remedy = "name that class too" if found else f"write @event(store, {event_type!r})"
            raise checks.error(
                f"its event is annotated {text}, and the payload of {event_type!r} {what}; {remedy}"
            )
    return typed


def _members(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if is_union else (annotation,)
