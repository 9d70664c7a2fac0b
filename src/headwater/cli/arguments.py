"""Values on the command line, and hints at names that a features file does not declare."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import typer

from headwater.cli import is_utf8, quote_bytes
from headwater.cli.commands import CommandCall, features_file
from headwater.cli.output import note
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest


def check_utf8(arguments: Sequence[str | None], consequence: str) -> None:
    """Raise BadParameter if an argument is not UTF-8 text."""
    for argument in arguments:
        if argument is not None and not is_utf8(argument):
            raise typer.BadParameter(f"{quote_bytes(argument)} is not UTF-8 text; {consequence}")


def parse_values(
    arguments: Sequence[str], what: str, annotations: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return values by name, from one JSON object or from key=value pairs.

    The value of a pair may be JSON. It stays text if its annotation accepts only text.
    """
    if len(arguments) == 1 and arguments[0].lstrip().startswith("{"):
        try:
            return msgspec.json.decode(arguments[0], type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise typer.BadParameter(f"the {what} is not JSON: {error}") from error
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not key or not equals:
            raise typer.BadParameter(
                f"{argument!r} is not a {what}; write key=value pairs or one JSON object"
            )
        if key in values:
            raise typer.BadParameter(
                f"{key!r} appears twice; write it once, or as a list: {key}='[1, 2]'"
            )
        values[key] = _parse_value(text, key, (annotations or {}).get(key, Any))
    return values


def _parse_value(text: str, key: str, annotation: Any) -> Any:
    """Return the value of a pair: JSON, or text if it is not JSON or only text fits."""
    may_be_text = annotation is not Any and _fits(text, annotation)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.ValidationError, RecursionError) as error:
        if may_be_text:
            return text
        # Valid JSON with a number that is out of range; taken as text it would be another value.
        raise typer.BadParameter(
            f"{key!r}: {error}; use another value, or text: {key}='\"…\"'"
        ) from error
    except msgspec.DecodeError:
        return text
    if not may_be_text:
        return value
    # A Decimal keeps the digits of the text; a float would round them.
    is_exact = type(value) is float and type(msgspec.convert(text, annotation)) is not str
    return text if is_exact or not _fits(value, annotation) else value


def _fits(value: Any, annotation: Any) -> bool:
    try:
        msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError):  # TypeError: msgspec does not know the type
        return False
    return True


def hint_at_unknown_names(
    call: CommandCall,
    *,
    feature: str | None = None,
    entity: str | None = None,
    entity_id: str | None = None,
    context: str | None = None,
    index: str | None = None,
) -> None:
    """Print a note for each name or id that the features file does not know.

    Without a features file, or with a server, there is nothing to compare with.
    """
    path = features_file(call.file)
    given = (feature, entity, entity_id, context, index)
    if call.server or given == (None,) * 5 or not (registry := call.declared):
        return
    for kind, name, declared in (
        ("feature", feature, registry.features),
        ("entity", entity, registry.entities),
        ("context", context, registry.contexts),
        ("index", index, registry.all_indexes()),
    ):
        if name is not None and name not in declared:
            note(f"{path} declares no {kind} {name!r}; {nearest(name, declared)}")
    if entity_id is not None:
        problems = _id_problems(registry, feature, entity, entity_id)
        if problems and problems[0] is not None and None not in problems:
            note(problems[0])


def know_events(call: CommandCall) -> None:
    """Let the store of the settings know what the features file declares, if there is one.

    So payloads are checked, and events of erased entities and their owners are refused.
    """
    if not (call.server or call.file) and (declared := call.declared):
        runtime = runtime_of(call.local)
        runtime.registry, runtime.publisher.warns = declared, False


def hint_at_unknown_events(call: CommandCall, events: Iterable[str]) -> None:
    """Print a note for each event type that triggers no feature of the features file."""
    if call.server:
        return
    path = features_file(call.file)
    if registry := runtime_of(call.local).registry if call.file else call.declared:
        triggers = {
            trigger for feature in registry.features.values() for trigger in feature.triggers
        }
        for event_type in sorted(set(events) - triggers) if triggers else ():
            problem = f"No feature of {path} is triggered by {event_type!r}"
            note(f"{problem}; {nearest(event_type, triggers)}")


def _id_problems(
    registry: Registry, feature: str | None, entity: str | None, entity_id: str
) -> list[str | None]:
    """Return, for each entity that an id may belong to, why it is not one, or None."""
    owners = list(registry.entities.values())
    if entity is not None:
        owners = [owner for owner in owners if owner.name == entity]
    elif feature is not None:
        owners = [registry.features[feature].entity] if feature in registry.features else []
    problems: list[str | None] = []
    for owner in owners:
        try:
            owner.text_id(entity_id)
            problems.append(None)
        except InvalidInputError as error:
            problems.append(str(error))
    return problems
