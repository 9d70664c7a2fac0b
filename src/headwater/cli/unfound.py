"""Why nothing was found, perhaps: a name that nobody declares, or an id that nothing can have."""

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from headwater.cli.options import declared_store
from headwater.cli.output import note
from headwater.define import EntityDef
from headwater.errors import DeclarationError, InvalidInputError
from headwater.evidence import Wanted
from headwater.names import nearest
from headwater.registry import Registry


def note_doubts(wanted: Wanted, file: Path | None) -> None:
    """Says to a person what in a search that found nothing may be a slip of the pen."""
    if wanted.feature is None and wanted.entity_id is None:
        return
    try:
        # What a features file prints is no part of the answer.
        with redirect_stdout(sys.stderr):
            registry = declared_store(file).registry
    except DeclarationError as error:
        note(f"Nobody knows whether these names are declared: {error}")
        return
    for doubt in doubts(wanted, registry):
        note(doubt)


def doubts(wanted: Wanted, registry: Registry) -> Iterator[str]:
    """What is not as it is declared now; records are kept of what was declared before, too."""
    for kind, name, known in (
        ("feature", wanted.feature, registry.features),
        ("entity", wanted.entity, registry.entities),
    ):
        if name is not None and name not in known:
            yield (
                f"No {kind} {name!r} is declared now, and one that is gone is found by its old "
                f"name; {nearest(name, known)}"
            )
    refusals = [_refusal(owner, wanted.entity_id) for owner in _owners(wanted, registry)]
    if refusals and all(refusals):
        yield f"Nothing has such an id now: {refusals[0]}"


def _owners(wanted: Wanted, registry: Registry) -> list[EntityDef]:
    """The entities that an id may be of."""
    if wanted.entity is not None:
        return [owner for name, owner in registry.entities.items() if name == wanted.entity]
    if wanted.feature is not None:
        return [f.entity for name, f in registry.features.items() if name == wanted.feature]
    return list(registry.entities.values())


def _refusal(owner: EntityDef, entity_id: str | int | None) -> str | None:
    """Why this is no id of that entity."""
    if entity_id is None:
        return None
    try:
        owner.text_id(entity_id)
    except InvalidInputError as error:
        return str(error)
    return None
