"""Hints at names that a features file does not declare."""

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from headwater.cli.commands import Call, declared_store, features_file
from headwater.cli.output import note
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeaturesFileError, InvalidInputError
from headwater.errors.hints import nearest
from headwater.store.loader import locate


def hint_at_unknown_names(
    call: Call,
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
    if call.server or given == (None,) * 5 or not (registry := _declared(path)):
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


def hint_at_unknown_events(call: Call, events: Iterable[str]) -> None:
    """Print a note for each event type that triggers no feature of the features file."""
    if call.server:
        return
    path = features_file(call.file)
    if registry := runtime_of(call.local).registry if call.file else _declared(path):
        triggers = {
            trigger for feature in registry.features.values() for trigger in feature.triggers
        }
        for event_type in sorted(set(events) - triggers) if triggers else ():
            problem = f"No feature of {path} is triggered by {event_type!r}"
            note(f"{problem}; {nearest(event_type, triggers)}")


def _declared(path: Path) -> Registry | None:
    """Return the declarations of a features file, or None if it does not exist or load."""
    try:
        locate(path)
    except FeaturesFileError:
        return None
    try:
        # The features file may print; stdout is for the command's own output.
        with redirect_stdout(sys.stderr):
            return runtime_of(declared_store(path)).registry
    except DeclarationError as error:
        note(f"Could not check the names, because {path} did not load: {error}")
        return None


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
