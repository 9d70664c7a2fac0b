"""Features that templates of contexts and retrievers refer to by name."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError, UnknownReferenceError
from headwater.errors.hints import Location
from headwater.features.reader import Reader


class ReferenceOwner(NamedTuple):
    """The context or retriever whose template refers to features, for messages."""

    name: str
    location: Location


class References:
    """Reads features for the entities whose ids are arguments of a call."""

    def __init__(self, registry: Registry, reader: Reader) -> None:
        self._registry = registry
        self._reader = reader

    async def read(
        self, names: Sequence[str], arguments: Mapping[str, Any], owner: ReferenceOwner
    ) -> dict[str, Any]:
        """Return the values of features, each read for the entity that the arguments name."""
        by_id_field: dict[str, list[str]] = {}
        for name in names:
            by_id_field.setdefault(id_field(self._registry, name, arguments, owner), []).append(
                name
            )
        rows = await asyncio.gather(
            *(self._reader.read(group, [arguments[field]]) for field, group in by_id_field.items())
        )
        return {name: value.value for (row,) in rows for name, value in row.items()}


def id_field(
    registry: Registry, name: str, parameters: Container[str], owner: ReferenceOwner
) -> str:
    """Return the parameter that holds the id of the feature's entity; raise if there is none."""
    if name not in registry.features:
        template = f"a template of {owner.name}"
        raise UnknownReferenceError(template, "feature", name, registry.features, owner.location)
    field = registry.features[name].entity.id_field
    if field not in parameters:
        raise InvalidInputError(
            f"{owner.name}: a template names {name!r}, so the function needs a parameter "
            f"{field!r} that says whose {name} it is"
        )
    return field
