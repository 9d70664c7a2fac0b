"""The decorator ``entity``.

Declaring runs nothing: it checks the class, reports errors with file and line, and adds a
declaration to the store.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Protocol, TypeVar, get_type_hints, overload
from weakref import WeakKeyDictionary

import msgspec

from headwater.declarations.checks import calling_frame, check_identifier, location_of_frame
from headwater.declarations.feature_handles import FeatureAccess
from headwater.declarations.features import EntityDef
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.errors import DeclarationError
from headwater.errors.hints import Location

C = TypeVar("C", bound=type)


class Declares(Protocol):
    """The part of a store's runtime that the decorators need."""

    @property
    def registry(self) -> Registry: ...


class DeclaringStore(HasRuntime[Declares], FeatureAccess, Protocol):
    """A FeatureStore, as entities and features need it."""


class DeclaredEntity(msgspec.Struct, frozen=True):
    """An entity and the store that it was declared on."""

    store: DeclaringStore
    entity: EntityDef


_entities: WeakKeyDictionary[type, DeclaredEntity] = WeakKeyDictionary()


@overload
def entity(store: DeclaringStore, cls: C, /) -> C: ...


@overload
def entity(store: DeclaringStore, /, *, name: str | None = None) -> Callable[[C], C]: ...


def entity(
    store: DeclaringStore, cls: C | None = None, /, *, name: str | None = None
) -> C | Callable[[C], C]:
    """Declare a class with one id field, such as ``user_id: str``, as an entity of the store.

    >>> @store.entity
    ... class Customer:
    ...     customer_id: str
    """
    caller = calling_frame()
    location = location_of_frame(caller)
    if isinstance(store, type):
        raise DeclarationError(
            "@entity needs the store; write @entity(store) or @store.entity", location
        )

    def declare(cls: C) -> C:
        id_field, id_type = _id_field(cls, location, caller)
        declared = EntityDef(cls.__name__ if name is None else name, id_field, id_type, location)
        check_identifier("entity", declared.name, location)
        runtime_of(store).registry.add_entity(declared)
        _entities[cls] = DeclaredEntity(store, declared)
        return cls

    return declare if cls is None else declare(cls)


def declared_entity(cls: object) -> DeclaredEntity | None:
    """Return the entity that a class was declared as, if it was."""
    return _entities.get(cls) if isinstance(cls, type) else None


def _id_field(
    cls: type, location: Location, caller: FrameType | None
) -> tuple[str, type[str] | type[int]]:
    hints = get_type_hints(cls, localns=caller.f_locals if caller else None)
    fields = list(hints.items())
    if len(fields) != 1:
        named = [field for field in fields if field[0].endswith("_id")]
        fields = named if len(named) == 1 else []
    if not fields:
        raise DeclarationError(
            f"entity {cls.__name__} needs one id field; annotate it, for example "
            f"`{cls.__name__.lower()}_id: str`",
            location,
        )
    field, kind = fields[0]
    if kind is not str and kind is not int:
        raise DeclarationError(
            f"entity {cls.__name__}: the id field {field!r} must be str or int", location
        )
    return field, kind
