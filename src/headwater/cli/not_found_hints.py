"""Why nothing was found, perhaps: a name that nobody declares, or an id that nothing can have."""

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from headwater.cli.options import declared_store, features_file
from headwater.cli.output import note
from headwater.declarations.features import EntityDef
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, InvalidInputError
from headwater.errors.hints import nearest


class Named(NamedTuple):
    """What a person asked for by name, and nothing was found."""

    feature: str | None = None
    entity: str | None = None
    entity_id: str | None = None
    context: str | None = None


def note_doubts(named: Named, file: Path | None) -> None:
    """Says to a person what in a search that found nothing may be a slip of the pen."""
    if all(part is None for part in named):
        return
    try:
        # What a features file prints is no part of the answer.
        with redirect_stdout(sys.stderr):
            registry = runtime_of(declared_store(file)).registry
    except DeclarationError as error:
        note(f"Nobody knows whether these names are declared: {error}")
        return
    for doubt in doubts(named, registry):
        note(doubt)


def note_doubts_at_hand(named: Named, file: Path | None) -> None:
    """The same for a list, which people also ask for where no features file is."""
    if features_file(file).is_file():
        note_doubts(named, file)


def doubts(named: Named, registry: Registry) -> Iterator[str]:
    """What is not as it is declared now; records are kept of what was declared before, too."""
    for kind, name, known in (
        ("feature", named.feature, registry.features),
        ("entity", named.entity, registry.entities),
        ("context", named.context, registry.contexts),
    ):
        if name is not None and name not in known:
            yield (
                f"No {kind} {name!r} is declared now, and one that is gone is found by its old "
                f"name; {nearest(name, known)}"
            )
    refusals = [_refusal(owner, named.entity_id) for owner in _owners(named, registry)]
    if refusals and all(refusals):
        yield f"Nothing has such an id now: {refusals[0]}"


def _owners(named: Named, registry: Registry) -> list[EntityDef]:
    """The entities that an id may be of."""
    if named.entity is not None:
        return [owner for name, owner in registry.entities.items() if name == named.entity]
    if named.feature is not None:
        return [f.entity for name, f in registry.features.items() if name == named.feature]
    return list(registry.entities.values())


def _refusal(owner: EntityDef, entity_id: str | None) -> str | None:
    """Why this is no id of that entity."""
    if entity_id is None:
        return None
    try:
        owner.text_id(entity_id)
    except InvalidInputError as error:
        return str(error)
    return None
