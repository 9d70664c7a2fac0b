"""What entities belong to: the owners that each has now, and what belongs to an owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from headwater.core.batching import batched
from headwater.core.clock import from_micros
from headwater.core.sql_literals import text, texts
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.features.services import Services
from headwater.model.callers import CallerLimits
from headwater.model.values import Cells, EntityKey, ServiceEvent

_PAGE = 500
_TOLERANCE_US = 60_000_000
"""How much earlier a server may have received an event than another says that it waits."""


class Ownership:
    """Reads the features with the ids of owners."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._online = services.backends.online
        self._offline = services.backends.offline

    def has_owners(self, entity: str) -> bool:
        """Return whether entities of a class may belong to others."""
        declared = self._registry.entities.get(entity)
        return declared is not None and bool(declared.belongs_to)

    async def owners(
        self, entity: EntityDef, entity_ids: Sequence[str], *, expected: bool = False
    ) -> list[list[EntityKey]]:
        """Return the owners that each entity has now, by its current values.

        With ``expected`` these are, of one without, the owners that waiting events name.
        """
        if not entity.belongs_to:
            return [[] for _ in entity_ids]
        if not expected:
            rows = await self._online.get(entity.name, entity_ids)
            return [list(_named(self._registry, entity, cells)) for cells in rows]
        owners = []
        for entity_id, standing in zip(
            entity_ids, await self._online.get_with_waiting(entity.name, entity_ids), strict=True
        ):
            own = list(_named(self._registry, entity, standing.cells))
            if not own and standing.waiting_since is not None:
                own = await self._waiting_owners(entity, entity_id, standing.waiting_since)
            owners.append(own)
        return owners

    async def _waiting_owners(
        self, entity: EntityDef, entity_id: str, since: int
    ) -> list[EntityKey]:
        """Return the owners that events of an entity name, of those accepted since a moment."""
        moment = from_micros(since - _TOLERANCE_US).isoformat(sep=" ", timespec="microseconds")
        rows = await self._offline.query(
            'SELECT event_type, CAST(payload AS VARCHAR), "timestamp" FROM events'
            f" WHERE entity_id = {text(entity_id)} AND received_at >= TIMESTAMPTZ {text(moment)}"
            f" ORDER BY received_at LIMIT {_PAGE}",
            {},
        )
        named: dict[EntityKey, None] = {}
        for event_type, payload, at in rows.rows:
            if entity.name in self._registry.triggered_entities(event_type):
                content = msgspec.json.decode(payload, type=dict[str, Any])
                event = ServiceEvent(event_type, entity_id, content, at)
                named |= dict.fromkeys(self._registry.named_owners(entity, event))
        return [*named]

    async def owned_by(self, keys: Collection[EntityKey], limits: CallerLimits) -> set[EntityKey]:
        """Return those of some entities that belong now to one that limits allow."""
        belonging: set[EntityKey] = set()
        waiting = {key: {key} for key in keys if key[1]}
        while waiting:
            following: dict[EntityKey, set[EntityKey]] = {}
            for name in {name for name, _ in waiting if self.has_owners(name)}:
                ids = [entity_id for entity, entity_id in waiting if entity == name]
                owners = await self.owners(self._registry.entity(name), ids)
                for entity_id, of_one in zip(ids, owners, strict=True):
                    for owner in of_one:
                        if limits.allow(*owner):
                            belonging |= waiting[name, entity_id]
                        following.setdefault(owner, set()).update(waiting[name, entity_id])
            waiting = {owner: owned - belonging for owner, owned in following.items()}
            waiting = {owner: owned for owner, owned in waiting.items() if owned}
        return belonging

    async def belonging(
        self, entity: EntityDef, entity_id: str
    ) -> dict[EntityDef, tuple[str, ...]]:
        """Return the ids of all that belongs to an entity, also by way of others, by entity.

        Each belongs to its present owner. One that an erasure has left without current values
        belongs to the last owner that it had.
        """
        found: dict[str, dict[str, None]] = {}
        waiting: list[tuple[EntityDef, Sequence[str]]] = [(entity, (entity_id,))]
        while waiting:
            owner, owner_ids = waiting.pop()
            for feature in self._registry.owned(owner):
                known = found.setdefault(feature.entity.name, {})
                async for ids in self._owned(feature, owner, owner_ids):
                    new = [each for each in ids if each not in known]
                    known |= dict.fromkeys(new)
                    if new:
                        waiting.append((feature.entity, new))
        entities = self._registry.entities
        return {entities[name]: tuple(ids) for name, ids in found.items() if ids}

    async def _owned(
        self, feature: FeatureDef, owner: EntityDef, owner_ids: Sequence[str]
    ) -> AsyncIterator[list[str]]:
        """Yield the ids of the entities whose owner is one of some, in pages."""
        for some in batched(owner_ids, _PAGE):
            wanted, after = {(owner.name, each) for each in some}, ""
            values = [form for each in some for form in json_forms(each)]
            while True:
                # History has every value; the current ones of all entities are no table.
                rows = await self._offline.query(
                    "SELECT DISTINCT entity_id FROM feature_history"
                    f" WHERE feature IN ({texts([series for series, _ in feature.chain])})"
                    f" AND CAST(value AS VARCHAR) IN ({texts(values)})"
                    f" AND entity_id > {text(after)} ORDER BY entity_id LIMIT {_PAGE}",
                    {},
                )
                ids = [entity_id for (entity_id,) in rows.rows]
                owners = await self._last_owners(feature, ids)
                yield [each for each, key in zip(ids, owners, strict=True) if key in wanted]
                if len(ids) < _PAGE:
                    break
                after = ids[-1]

    async def _last_owners(
        self, feature: FeatureDef, entity_ids: Sequence[str]
    ) -> list[EntityKey | None]:
        """Return the present owner of each by a feature or, without any value, the last one."""
        owners: list[EntityKey | None] = []
        for entity_id, cells in zip(
            entity_ids, await self._online.get(feature.entity.name, entity_ids), strict=True
        ):
            value = _value(feature, cells)
            for series, _ in () if cells else feature.chain:
                (past,) = await self._offline.rows(series, [entity_id], limit=1)
                value = value or (past[0].value if past else None)
            owners.append(_owner(feature, value))
        return owners


def json_forms(entity_id: str) -> list[str]:
    """Return an id as JSON: text and, if it is a number, that number."""
    forms = [msgspec.json.encode(entity_id).decode()]
    with suppress(ValueError):
        forms += [entity_id] if str(int(entity_id)) == entity_id else []
    return forms


def _named(registry: Registry, entity: EntityDef, cells: Cells) -> Iterable[EntityKey]:
    for feature, _ in registry.owners(entity):
        owner = _owner(feature, _value(feature, cells))
        if owner is not None:
            yield owner


def _value(feature: FeatureDef, cells: Cells) -> bytes | None:
    stored = (cells[series] for series, _ in feature.chain if series in cells)
    cell = next(stored, None)
    return None if cell is None else bytes(cell.value)


def _owner(feature: FeatureDef, value: bytes | None) -> EntityKey | None:
    """Return the owner with a stored id; None if it is no id of its entity."""
    owner = feature.belongs_to
    if owner is None or value is None:
        return None
    with suppress(InvalidInputError):
        return owner.name, owner.text_id(msgspec.json.decode(value))
    return None
