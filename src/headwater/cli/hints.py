"""Hints at what else a features file declares, and at names that it does not declare."""

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from headwater.cli.options import AnyStore, declared_store, features_file
from headwater.cli.output import note, pluralize
from headwater.cli.remote import server_of
from headwater.declarations.features import EntityDef
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeaturesFileError, InvalidInputError
from headwater.errors.hints import nearest
from headwater.model.declarations import StoreListing
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import locate


def hint_at_unknown_names(
    file: Path | None,
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
    if server_of(file) is not None:
        return
    path = features_file(file)
    given = (feature, entity, entity_id, context, index)
    if given == (None,) * 5 or not (registry := _declared(path)):
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
        owners = _possible_owners(registry, feature, entity)
        problems = [_id_problem(owner, entity_id) for owner in owners]
        if problems and problems[0] is not None and None not in problems:
            note(problems[0])


def hint_at_unknown_events(file: Path | None, store: AnyStore, events: Iterable[str]) -> None:
    """Print a note for each event type that triggers no feature of the features file.

    ``store`` is the store of ``file``, if a file is named.
    """
    if not isinstance(store, FeatureStore):
        return
    path = features_file(file)
    if registry := runtime_of(store).registry if file else _declared(path):
        triggers = {
            trigger for feature in registry.features.values() for trigger in feature.triggers
        }
        for event_type in sorted(set(events) - triggers) if triggers else ():
            problem = f"No feature of {path} is triggered by {event_type!r}"
            note(f"{problem}; {nearest(event_type, triggers)}")


def hint_at_contexts(listed: StoreListing) -> None:
    """Print how to list contexts and retrievers, if there are any."""
    counts = [
        pluralize(len(declared), kind)
        for declared, kind in ((listed.contexts, "context"), (listed.retrievers, "retriever"))
        if declared
    ]
    if counts:
        note(f"The file also declares {' and '.join(counts)}: see `headwater context declared`.")


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


def _possible_owners(
    registry: Registry, feature: str | None, entity: str | None
) -> list[EntityDef]:
    """Return the entities that an id may belong to."""
    if entity is not None:
        return [owner for name, owner in registry.entities.items() if name == entity]
    if feature is not None:
        return [declared.entity for name, declared in registry.features.items() if name == feature]
    return list(registry.entities.values())


def _id_problem(owner: EntityDef, entity_id: str) -> str | None:
    try:
        owner.text_id(entity_id)
    except InvalidInputError as error:
        return str(error)
    return None
