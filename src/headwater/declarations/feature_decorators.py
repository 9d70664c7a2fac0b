"""The decorator ``feature``.

Declaring runs nothing: it checks the options and the function, reports errors with file and line,
and adds a declaration to the store.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, Never, ParamSpec, get_args, get_type_hints

import msgspec

from headwater.core.codec import Codec
from headwater.core.durations import Duration, to_timedelta
from headwater.core.templates import Template, parse_template
from headwater.core.values import INTERNAL, LONGEST_NAME
from headwater.declarations.entity_decorator import (
    DeclaringStore,
    calling_frame,
    declared_entity,
    location_of,
    location_of_frame,
)
from headwater.declarations.feature_handles import FeatureDecorator, FeatureFunction
from headwater.declarations.features import (
    DEFAULT_MAX_RETRIES,
    EntityDef,
    FeatureDef,
    Mode,
    Order,
)
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, DurationError, FeatureValueError
from headwater.errors.hints import Location, nearest

P = ParamSpec("P")


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the ``feature`` decorator, before they are checked."""

    entity: type
    name: str | None
    trigger: str | Iterable[str] | None
    refresh: Duration | None
    materialize: bool
    max_retries: int | None
    sql: str | None
    template: str | None
    default: Any
    ttl: Duration | None
    order: str
    unknown: dict[str, Any]


def feature(
    entity: type,
    *,
    name: str | None = None,
    trigger: str | Iterable[str] | None = None,
    refresh: Duration | None = None,
    materialize: bool = False,
    max_retries: int | None = None,
    sql: str | None = None,
    template: str | None = None,
    default: Any = None,
    ttl: Duration | None = None,
    order: Order = "stream",
    **unknown: Never,
) -> FeatureDecorator:
    """Declare the decorated function as a feature of an entity and return its handle.

    With ``trigger`` the function takes the entity id and the event and runs when such an event
    arrives. With ``refresh`` it runs on a schedule; ``sql`` makes it one query for all entities,
    and the function only declares name and type. With neither it runs when the value is read;
    ``template`` then composes the value from other features.

    >>> @feature(entity=User, trigger="purchase")
    ... def purchases(user_id: str, event: ServiceEvent) -> int:
    ...     return (store.sync.get_feature("purchases", user_id) or 0) + 1
    """
    options = _Options(
        entity=entity,
        name=name,
        trigger=trigger,
        refresh=refresh,
        materialize=materialize,
        max_retries=max_retries,
        sql=sql,
        template=template,
        default=default,
        ttl=ttl,
        order=order,
        unknown=unknown,
    )
    caller = calling_frame()

    def declare(function: Callable[..., Any], /) -> Any:
        function = function.function if isinstance(function, FeatureFunction) else function
        location = location_of(function, caller)
        declared = declared_entity(entity)
        if declared is None:
            raise DeclarationError(
                f"feature {function.__name__!r}: {entity!r} is not an entity; decorate its class "
                "with @entity(store) first",
                location,
            )
        _check_combination(options, function.__name__, location)
        local_names = caller.f_locals if caller else None
        definition = _feature_def(options, declared.entity, function, location, local_names)
        runtime_of(declared.store).registry.add_feature(definition)
        return FeatureFunction(declared.store, definition)

    return declare


def _on_store(
    decorator: Callable[P, FeatureDecorator],
) -> Callable[Concatenate[DeclaringStore, P], FeatureDecorator]:
    """Return the form of the decorator that is a method of the store."""

    @wraps(decorator)
    def method(store: DeclaringStore, /, *args: P.args, **kwargs: P.kwargs) -> FeatureDecorator:
        declare = decorator(*args, **kwargs)
        declared = declared_entity(args[0] if args else kwargs["entity"])
        if declared is not None and declared.store is not store:
            raise DeclarationError(
                f"entity {declared.entity.name!r} belongs to another store; declare the feature "
                "on that one",
                location_of_frame(calling_frame()),
            )
        return declare

    return method


store_feature = _on_store(feature)

_OPTION_NAMES = tuple(inspect.signature(feature).parameters)[:-1]


_EXCLUSIVE = (
    ("sql", "trigger"),
    ("refresh", "trigger"),
    ("template", "trigger"),
    ("refresh", "template"),
    ("sql", "template"),
)
_NEEDS = {
    "materialize": ("refresh", "the interval at which it is computed"),
    "sql": ("refresh", "the interval at which the query runs"),
    "max_retries": ("trigger", "only handlers of events are retried"),
    "order": ("trigger", "only events arrive out of order"),
}


def _check_combination(options: _Options, name: str, location: Location) -> None:
    for problem in _combination_problems(options):
        raise DeclarationError(f"feature {name!r}: {problem}", location)


def _combination_problems(options: _Options) -> Iterator[str]:
    given = {
        option
        for option, value in msgspec.structs.asdict(options).items()
        if value is not None and value is not False and (option, value) != ("order", "stream")
    }
    for unknown in options.unknown:
        yield f"unknown option {unknown!r}; {nearest(unknown, _OPTION_NAMES)}"
    for first, second in _EXCLUSIVE:
        if {first, second} <= given:
            yield f"{first} and {second} cannot be combined; a feature is computed in one way"
    for option, (needed, why) in _NEEDS.items():
        if option in given and needed not in given:
            yield f"{option} needs {needed}: {why}"
    if {"ttl", "template"} <= given:
        yield "ttl does not apply to a template, which is composed at every read"
    if options.order not in get_args(Order):
        yield f"order must be one of {', '.join(get_args(Order))}, not {options.order!r}"


def _feature_def(
    options: _Options,
    entity: EntityDef,
    function: Callable[..., Any],
    location: Location,
    local_names: dict[str, Any] | None,
) -> FeatureDef:
    name = options.name or function.__name__
    if not name.isidentifier() or len(name) > LONGEST_NAME:
        raise DeclarationError(f"feature name {name!r} is not an identifier", location)
    triggers = _triggers(options.trigger, name, location)
    _check_arity(function, name, 2 if triggers else 1, entity, location)
    codec = _codec(function, name, location, local_names)
    if codec.kind == "none" and not triggers:
        raise DeclarationError(
            f"feature {name!r} is annotated `-> None`; only features with trigger= may return "
            "nothing",
            location,
        )
    if options.default is not None:
        _check_default(codec, options.default, location)
    return FeatureDef(
        name=name,
        entity=entity,
        function=function,
        is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
        codec=codec,
        location=location,
        description=inspect.getdoc(function) or "",
        triggers=triggers,
        refresh=_span(options.refresh, name, "refresh", location),
        materialize=options.materialize,
        max_retries=_max_retries(options.max_retries, name, location),
        sql=options.sql,
        template=_template(options.template, codec, name, location),
        default=options.default,
        ttl=_span(options.ttl, name, "ttl", location),
        order="event_time" if options.order == "event_time" else "stream",
        mode=_mode(options),
        stored=bool(triggers) or options.materialize or options.sql is not None,
    )


def _mode(options: _Options) -> Mode:
    if options.trigger is not None:
        return "triggered"
    if options.refresh is not None:
        return "scheduled"
    return "on_demand" if options.template is None else "template"


def _triggers(
    trigger: str | Iterable[str] | None, name: str, location: Location
) -> tuple[str, ...]:
    if trigger is None:
        return ()
    triggers = (trigger,) if isinstance(trigger, str) else tuple(trigger)
    if not triggers or not all(isinstance(item, str) and item for item in triggers):
        raise DeclarationError(
            f"feature {name!r}: trigger must be an event type or a list of them", location
        )
    for event_type in triggers:
        if event_type.startswith(INTERNAL):
            raise DeclarationError(
                f"feature {name!r}: event types that begin with {INTERNAL!r} are reserved", location
            )
    return tuple(dict.fromkeys(triggers))


def _check_arity(
    function: Callable[..., Any], name: str, count: int, entity: EntityDef, location: Location
) -> None:
    wanted = f"({entity.id_field}, event)" if count == 2 else f"({entity.id_field})"
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        raise DeclarationError(
            f"feature {name!r} must take {wanted}, but its function does not: {error}", location
        ) from error


def _codec(
    function: Callable[..., Any],
    name: str,
    location: Location,
    local_names: dict[str, Any] | None,
) -> Codec:
    try:
        hints = get_type_hints(inspect.unwrap(function), localns=local_names)
        return Codec(name, hints.get("return", Any))
    except (NameError, TypeError) as error:
        raise DeclarationError(
            f"feature {name!r}: its return annotation cannot be used: {error}", location
        ) from error


def _check_default(codec: Codec, default: object, location: Location) -> None:
    try:
        codec.encode(default)
    except FeatureValueError as error:
        raise DeclarationError(f"default: {error}", location) from error


def _span(
    duration: Duration | None, name: str, option: str, location: Location
) -> timedelta | None:
    if duration is None:
        return None
    try:
        return to_timedelta(duration)
    except DurationError as error:
        raise DeclarationError(f"feature {name!r}: {option}: {error}", location) from error


def _max_retries(max_retries: int | None, name: str, location: Location) -> int:
    if max_retries is None:
        return DEFAULT_MAX_RETRIES
    if type(max_retries) is not int or max_retries < 0:
        raise DeclarationError(
            f"feature {name!r}: max_retries must be a whole number, 0 or above", location
        )
    return max_retries


def _template(text: str | None, codec: Codec, name: str, location: Location) -> Template | None:
    if text is None:
        return None
    if codec.kind not in ("text", "json"):
        raise DeclarationError(
            f"feature {name!r}: a template is text; annotate it `-> str`", location
        )
    return parse_template(text, location)
