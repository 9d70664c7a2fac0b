"""The decorator ``entity``.

Declaring runs nothing: it checks the class, reports errors with file and line, and adds a
declaration to the store.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Protocol, TypeVar, get_type_hints, overload
from weakref import WeakKeyDictionary

import msgspec

from headwater.core.codec import Codec
from headwater.declarations.checks import calling_frame, check_identifier, location_of_frame
from headwater.declarations.feature_handles import FeatureAccess
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import HasRuntime, runtime_of
from headwater.errors import DeclarationError
from headwater.errors.hints import Location
from headwater.model.values import ServiceEvent

C = TypeVar("C", bound=type)
Owners = Mapping[str, type]
"""The entities that one belongs to, by the feature or payload field with the owner's id."""


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
def entity(
    store: DeclaringStore, /, *, name: str | None = None, belongs_to: Owners | None = None
) -> Callable[[C], C]: ...


def entity(
    store: DeclaringStore,
    cls: C | None = None,
    /,
    *,
    name: str | None = None,
    belongs_to: Owners | None = None,
) -> C | Callable[[C], C]:
    """Declare a class with one id field, such as ``user_id: str``, as an entity of the store.

    Its docstring is the description.

    With ``belongs_to`` each of them belongs to entities of other classes, by the feature that has
    the owner's id. If no feature of this entity has the name, it is a field of the payloads of its
    events, and a feature that keeps it is implied, ``ticket_customer_id``. What belongs to an
    entity is forgotten with it, and keys that are limited to its id may use it.

    >>> @store.entity
    ... class Customer:
    ...     customer_id: str
    >>> @store.entity(belongs_to={"customer_id": Customer})
    ... class Ticket:
    ...     ticket_id: str
    """
    caller = calling_frame()
    location = location_of_frame(caller)
    if isinstance(store, type):
        raise DeclarationError(
            "@entity needs the store; write @entity(store) or @store.entity", location
        )

    def declare(cls: C) -> C:
        id_field, id_type = _id_field(cls, location, caller)
        own_name = cls.__name__ if name is None else name
        check_identifier("entity", own_name, location)
        owners = tuple(_owners(store, own_name, belongs_to or {}, location))
        declared = EntityDef(own_name, id_field, id_type, location, _described(cls), owners)
        registry = runtime_of(store).registry
        registry.add_entity(declared)
        for field, owner in owners:
            registry.add_feature(_implied(declared, field, owner))
        _entities[cls] = DeclaredEntity(store, declared)
        return cls

    return declare if cls is None else declare(cls)


def _described(cls: type) -> str:
    """Return the docstring of a class; that of a dataclass without one repeats its fields."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def declared_entity(cls: object) -> DeclaredEntity | None:
    """Return the entity that a class was declared as, if it was."""
    return _entities.get(cls) if isinstance(cls, type) else None


def _owners(
    store: DeclaringStore, name: str, belongs_to: Owners, location: Location
) -> Iterator[tuple[str, EntityDef]]:
    """Yield the owners that an entity declares; they were declared before it, so none is a part."""
    if not isinstance(belongs_to, Mapping):
        raise DeclarationError(
            f"entity {name}: belongs_to must name entities by the field with their id, for example "
            '{"customer_id": Customer}',
            location,
        )
    for field, owner in belongs_to.items():
        check_identifier("feature", field, location)
        declared = declared_entity(owner)
        if declared is None:
            raise DeclarationError(
                f"entity {name} cannot belong to {owner!r}, which is not an entity; decorate its "
                "class with @entity(store) first",
                location,
            )
        if runtime_of(declared.store) is not runtime_of(store):
            raise DeclarationError(
                f"entity {name} cannot belong to {declared.entity.name!r}, an entity of another "
                "store; declare both on one",
                location,
            )
        yield field, declared.entity


def _implied(entity: EntityDef, field: str, owner: EntityDef) -> FeatureDef:
    """Return the feature that keeps an owner's id, until one with the name of the field comes."""

    def kept(entity_id: str | int, event: ServiceEvent) -> str | int | None:
        owner_id = event.payload.get(field)
        return None if owner_id is None else owner.native_id(owner.text_id(owner_id))

    name = entity.implied_name(field)
    return FeatureDef(
        name=name,
        entity=entity,
        function=kept,
        is_async=False,
        codec=Codec(name, owner.id_type),
        location=entity.location,
        description=f"The {owner.name} that the {entity.name} belongs to: the last {field} in the "
        "payload of its events.",
        order="event_time",
        mode="stored",
        stored=True,
        is_implied=True,
    )


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
