"""The decorator ``feature``.

Declaring runs nothing: it checks the options and the function, reports errors with file and line,
and adds a declaration to the store.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from types import FrameType, SimpleNamespace
from typing import (
    Any,
    Concatenate,
    Never,
    ParamSpec,
    get_args,
    get_type_hints,
)

import msgspec

from headwater.core.codec import Codec
from headwater.core.durations import Duration
from headwater.core.schedules import parse_schedule
from headwater.core.sql_sources import SEVERAL_STATEMENTS, has_several_statements
from headwater.core.templates import Template, parse_template
from headwater.declarations.checks import (
    Checks,
    calling_frame,
    check_identifier,
    location_of_frame,
)
from headwater.declarations.contexts import sla_of
from headwater.declarations.definitions import remember_source
from headwater.declarations.entity_decorator import DeclaredEntity, DeclaringStore, declared_entity
from headwater.declarations.event_decorator import typed_events
from headwater.declarations.feature_handles import (
    Feature,
    FeatureDecorator,
    FeatureFunction,
)
from headwater.declarations.features import (
    DEFAULT_MAX_RETRIES,
    EntityDef,
    FeatureDef,
    FreshnessBy,
    Order,
)
from headwater.declarations.runtime import runtime_of
from headwater.declarations.window_options import (
    Family,
    WindowOptions,
    contribution_type,
    declared_windows,
    defaults_of,
    unit_of,
)
from headwater.errors import DeclarationError, FeatureValueError, InvalidInputError
from headwater.model.declarations import Mode
from headwater.model.values import INTERNAL

P = ParamSpec("P")


def feature(
    entity: type | None = None,
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
    freshness: FreshnessBy = "age",
    freshness_sla: Duration | None = None,
    log: bool = False,
    derived: bool = False,
    repeatable: bool = False,
    convert: Callable[[Any], Any] | None = None,
    window: Duration | Iterable[Duration] | None = None,
    aggregate: str | Iterable[str] | None = None,
    hop: Duration | None = None,
    where: Mapping[str, Any] | None = None,
    by: str | None = None,
    value: str | None = None,
    max_keys: int | None = None,
    stored: bool = False,
    description: str = "",
    owner: str = "",
    tags: str | Iterable[str] = (),
    unit: str = "",
    **unknown: Never,
) -> FeatureDecorator:
    """Declare the decorated function as a feature of an entity and return its handle.

    With ``trigger`` the function takes the entity id and the event and runs when such an event
    arrives. With ``refresh`` it runs on a schedule, such as ``5m`` or ``cron: 0 6 * * mon-fri
    Europe/Berlin``; ``sql`` makes it one query for all entities, and the function only declares
    name and type. With neither it runs when the value is read;
    ``template`` then composes the value from other features. With ``stored`` it never runs: the
    value is what ``set_feature``, the handlers of other features or an import wrote.

    In contexts a value is as old as its ``as_of``. With ``freshness="caught_up"`` a triggered value
    is as old as the oldest event that waits in its partition, and a scheduled one as its last run;
    a default as the last successful run of its query, and unproven without one. While an
    event is a dead letter of the feature, the value of its entity is not fresh.
    ``freshness_sla`` replaces the SLA of the context for this feature.

    History has the values that are stored. Of an on-demand feature that is not, ``log`` keeps
    every value that was computed; ``derived`` declares that the function depends on nothing but
    the features it reads, so that history computes past values again.

    A backfill runs the function again for past events, and refuses verbs that change anything but
    values, such as ``publish``, unless the feature is ``repeatable``.

    After a change of the return annotation, ``convert`` makes a value of the new type from the
    plain JSON value of one that was stored with the old type.

    With ``window`` and ``aggregate`` the function returns what one event contributes, and each
    aggregate of each window is a feature, such as ``spend_sum_1h``: ``count``, ``sum``, ``avg``,
    ``min``, ``max``, ``stddev``, ``distinct``, ``first``, ``last``, ``last(n)``, ``rate`` and
    ``p1`` to ``p99``. A window moves in steps of ``hop``. Of contributions with fields, ``value``
    names the one that is aggregated, ``where`` selects some, and ``by`` makes each value a dict by
    the values of a field, of which at most ``max_keys`` are kept apart.

    ``description``, which is the docstring unless it is given, ``owner``, ``tags`` and ``unit`` are
    for people; another one does not make it another feature.

    >>> @feature(entity=User, trigger="purchase")
    ... def purchases(user_id: str, event: ServiceEvent) -> int:
    ...     return (store.sync.get_feature("purchases", user_id) or 0) + 1
    """
    options = SimpleNamespace(**locals())
    caller, declared = calling_frame(), declared_entity(entity)
    if declared is not None:
        return partial(_declare_feature, options, declared, caller)
    problem = "@feature needs the entity; write @feature(entity=User)"
    if isinstance(entity, type):
        problem = f"{entity!r} is not an entity; decorate its class with @entity(store) first"
    raise DeclarationError(problem, location_of_frame(caller))


def _declare_feature(
    options: SimpleNamespace,
    declared: DeclaredEntity,
    caller: FrameType | None,
    function: Callable[..., Any],
    /,
) -> Any:
    function = function.function if isinstance(function, FeatureFunction) else function
    checks = Checks(feature, function, options.name, options.unknown, caller)
    for problem in _combination_problems(vars(options)):
        raise checks.error(problem)
    triggers = _triggers(checks, options.trigger)
    _check_arity(checks, function, 2 if triggers else 1, declared.entity)
    hints = _hints(checks, function, caller)
    codec = _codec(checks, hints, options.convert, is_family=options.window is not None)
    registry = runtime_of(declared.store).registry
    family: Family | None = None
    defaults: dict[str, Any] = {}
    if options.window is not None:
        family, defaults = _family(checks, codec, options)
        options.order = "event_time"  # a contribution is of the time of its event
    else:
        _check_value(checks, codec, options.default, is_triggered=bool(triggers))
    definition = FeatureDef(
        name=checks.name,
        entity=declared.entity,
        function=function,
        is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
        codec=codec,
        location=checks.location,
        description=checks.text("description", options.description)
        or inspect.getdoc(function)
        or "",
        owner=checks.text("owner", options.owner),
        tags=_tags(checks, options.tags),
        unit=checks.text("unit", options.unit),
        triggers=triggers,
        typed_events=typed_events(
            checks, registry.events, _event_annotation(function, hints), triggers
        ),
        refresh=(
            None
            if options.refresh is None
            else checks.parsed("refresh", options.refresh, parse_schedule)
        ),
        max_retries=_max_retries(checks, options.max_retries),
        template=_template(checks, options.template, codec),
        ttl=checks.span("ttl", options.ttl),
        freshness_sla=checks.span("freshness_sla", options.freshness_sla, sla_of),
        mode=_mode(options),
        stored=bool(triggers) or options.stored or options.materialize or options.sql is not None,
        default=None if family else options.default,
        windows=family and family[0],
        **{option: getattr(options, option) for option in _UNCHANGED},
    )
    remember_source(function)
    registry.add_feature(definition)
    handle: FeatureFunction[Any, ..., Any] = FeatureFunction(declared.store, definition)
    for member in _members(definition, family, defaults) if family else ():
        registry.add_feature(member)
        window = member.window
        assert window is not None, "a member is of a window"
        key = (window.aggregate.text, window.window.name)
        handle.members[key] = Feature(declared.store, member)
    return handle


def _members(
    definition: FeatureDef, family: Family, defaults: Mapping[str, Any]
) -> Iterator[FeatureDef]:
    """Yield the features of a family: each aggregate of each window."""
    for name, (member, codec) in family[1].items():
        check_identifier("feature", name, definition.location)
        what = f"{member.aggregate.text} of {member.family} over {member.window.name}"
        yield msgspec.structs.replace(
            definition,
            name=name,
            series=definition.series,
            codec=codec,
            triggers=(),
            windows=None,
            window=member,
            default=defaults.get(name),
            description=f"{what}: {definition.description}".removesuffix(": "),
            unit=unit_of(member.aggregate, definition.unit),
            mode="window",
            stored=False,
        )


def _family(
    checks: Checks, codec: Codec, options: SimpleNamespace
) -> tuple[Family, dict[str, Any]]:
    """Return the windows that a function declares, and the defaults of its features."""
    given = WindowOptions(*(getattr(options, name) for name in WindowOptions.__struct_fields__))
    try:
        family = declared_windows(checks.name, codec.annotation, given)
        return family, defaults_of(family[1], options.default)
    except FeatureValueError as error:
        raise DeclarationError(f"default: {error}", checks.location) from error
    except InvalidInputError as error:
        raise checks.error(str(error)) from error


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

_UNCHANGED = (
    *("materialize", "sql", "order", "freshness"),
    *("log", "derived", "repeatable"),
)
"""Options that a definition has as they were passed."""
_USUAL = {"order": "stream", "freshness": "age"}
_ONE_WAY = "a feature is computed in one way"
_EXCLUSIVE = (
    ("sql", "trigger", _ONE_WAY),
    ("refresh", "trigger", _ONE_WAY),
    ("template", "trigger", _ONE_WAY),
    ("refresh", "template", _ONE_WAY),
    ("sql", "template", _ONE_WAY),
    *(
        (option, other, f"{option} is for features that a function computes when they are read")
        for option in ("log", "derived")
        for other in ("trigger", "refresh", "template")
    ),
    *(
        (
            "stored",
            option,
            "stored is for features that only other handlers, set_feature and imports write; "
            "leave it out",
        )
        for option in ("trigger", "refresh", "sql", "template", "log", "derived")
    ),
    *(
        (option, "window", "a window is computed from the contributions of events")
        for option in ("ttl", "convert", "log", "derived", "materialize", "sql", "template")
    ),
    ("order", "window", "contributions are ordered by the time of their events"),
    ("log", "ttl", "values with a ttl are in history already"),
    ("log", "derived", "choose whether history keeps the values or computes them again"),
)
_NEEDS = {
    "materialize": ("refresh", "the schedule on which it is computed"),
    "sql": ("refresh", "the schedule on which the query runs"),
    "max_retries": ("trigger", "only handlers of events are retried"),
    "order": ("trigger", "only events arrive out of order"),
    "repeatable": ("trigger", "only handlers of events are run again by a backfill"),
    "window": ("trigger", "windows are over events"),
    "aggregate": ("window", "the span of time, such as '1h'"),
    **{
        option: ("window", "it is an option of windows")
        for option in ("hop", "where", "by", "value", "max_keys")
    },
}


def _combination_problems(options: Mapping[str, object]) -> Iterator[str]:
    passed = {name for name, value in options.items() if value is not None and value is not False}
    passed -= {name for name, value in _USUAL.items() if options[name] == value}
    for first, second, why in _EXCLUSIVE:
        if {first, second} <= passed:
            yield f"{first} and {second} cannot be combined; {why}"
    for option, (needed, why) in _NEEDS.items():
        if option in passed and needed not in passed:
            yield f"{option} needs {needed}: {why}"
    if "window" in passed and "aggregate" not in passed:
        yield "window needs aggregate: what is computed of it, such as 'sum' or ['count', 'p95']"
    if {"ttl", "template"} <= passed:
        yield "ttl does not apply to a template, which is composed at every read"
    for option, choices in (("order", get_args(Order)), ("freshness", get_args(FreshnessBy))):
        if options[option] not in choices:
            yield f"{option} must be one of {', '.join(choices)}, not {options[option]!r}"
    if "freshness" in passed and passed.isdisjoint(("trigger", "refresh")):
        yield (
            "freshness needs trigger or refresh: a value that is computed when it is read is as "
            "fresh as its inputs, and one that is only stored as old as its as_of"
        )
    if isinstance(sql := options["sql"], str) and has_several_statements(sql):
        yield SEVERAL_STATEMENTS
    if "convert" in passed and passed.isdisjoint(("trigger", "refresh", "stored", "ttl", "log")):
        yield "convert needs stored values: trigger, refresh, stored, ttl or log"


def _mode(options: SimpleNamespace) -> Mode:
    if options.trigger is not None:
        return "triggered"
    if options.refresh is not None:
        return "scheduled"
    if options.stored:
        return "stored"
    return "on_demand" if options.template is None else "template"


def _triggers(checks: Checks, trigger: str | Iterable[str] | None) -> tuple[str, ...]:
    if trigger is None:
        return ()
    triggers = (trigger,) if isinstance(trigger, str) else tuple(trigger)
    are_types = triggers and all(isinstance(item, str) and item for item in triggers)
    checks.check("trigger", "an event type or a list of them", holds=bool(are_types))
    if any(event_type.startswith(INTERNAL) for event_type in triggers):
        raise checks.error(f"event types that begin with {INTERNAL!r} are reserved")
    return tuple(dict.fromkeys(triggers))


def _tags(checks: Checks, tags: str | Iterable[str]) -> tuple[str, ...]:
    texts = (tags,) if isinstance(tags, str) else tuple(tags)
    are_texts = all(isinstance(tag, str) and tag.strip() == tag != "" for tag in texts)
    checks.check("tags", "a text or a list of them, without spaces around them", holds=are_texts)
    return tuple(dict.fromkeys(texts))


def _check_arity(
    checks: Checks, function: Callable[..., Any], count: int, entity: EntityDef
) -> None:
    signature_text = f"({entity.id_field}, event)" if count == 2 else f"({entity.id_field})"
    signature = inspect.signature(function)
    try:
        signature.bind(*range(count))
    except TypeError as error:
        bare = [
            parameter.replace(annotation=parameter.empty)
            for parameter in signature.parameters.values()
        ]
        taken = signature.replace(parameters=bare, return_annotation=signature.empty)
        raise DeclarationError(
            f"feature {checks.name!r} must take {signature_text}, but its function takes {taken}",
            checks.location,
        ) from error


def _hints(
    checks: Checks, function: Callable[..., Any], caller: FrameType | None
) -> dict[str, Any]:
    """Return the annotations of a function."""
    local_names = caller.f_locals if caller else None
    try:
        return get_type_hints(inspect.unwrap(function), localns=local_names)
    except (NameError, TypeError) as error:
        raise checks.error(f"its annotations cannot be used: {error}") from error


def _event_annotation(function: Callable[..., Any], hints: Mapping[str, Any]) -> Any:
    """Return the annotation of a handler's second parameter, if it has one."""
    names = list(inspect.signature(function).parameters)
    return hints.get(names[1]) if len(names) > 1 else None


def _codec(
    checks: Checks,
    hints: Mapping[str, Any],
    convert: Callable[[Any], Any] | None,
    *,
    is_family: bool,
) -> Codec:
    if convert is not None:
        _check_convert(checks, convert)
    annotation = hints.get("return", Any)
    if is_family:
        annotation = contribution_type(annotation)
    try:
        return Codec(checks.name, annotation, convert)
    except TypeError as error:
        raise checks.error(f"its return annotation cannot be used: {error}") from error


def _check_convert(checks: Checks, convert: Callable[[Any], Any]) -> None:
    is_plain = callable(convert) and not inspect.iscoroutinefunction(convert)
    checks.check("convert", "a function that takes the old value, not async", holds=is_plain)
    try:
        inspect.signature(convert).bind(None)
    except TypeError as error:
        raise checks.error(f"convert must take one argument, the old value: {error}") from error
    except ValueError:
        return  # a built-in such as int has no signature


def _check_value(checks: Checks, codec: Codec, default: object, *, is_triggered: bool) -> None:
    if codec.kind == "none" and not is_triggered:
        raise DeclarationError(
            f"feature {checks.name!r} is annotated `-> None`; only features with trigger= may "
            "return nothing",
            checks.location,
        )
    if default is not None:
        try:
            codec.encode(default)
        except FeatureValueError as error:
            raise DeclarationError(f"default: {error}", checks.location) from error


def _max_retries(checks: Checks, max_retries: int | None) -> int:
    if max_retries is None:
        return DEFAULT_MAX_RETRIES
    is_count = type(max_retries) is int and max_retries >= 0
    checks.check("max_retries", "a whole number, 0 or above", holds=is_count)
    return max_retries


def _template(checks: Checks, text: str | None, codec: Codec) -> Template | None:
    if text is None:
        return None
    if codec.kind not in ("text", "json"):
        raise checks.error("a template is text; annotate it `-> str`")
    return parse_template(text, checks.location)
