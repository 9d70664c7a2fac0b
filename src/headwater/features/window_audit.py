"""Comparing the windows that are served with the contributions in history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headwater.core.clock import Clock, from_micros
from headwater.declarations.features import FeatureDef
from headwater.features.window_states import WindowStates, values_at
from headwater.model.admin import Difference, StoredValue
from headwater.model.values import Cell
from headwater.ports import Backends

_encode = msgspec.json.Encoder(order="deterministic").encode

Compared = Mapping[str, Sequence[Difference] | None]
"""The features of a family that differ, by entity id; None if a worker wrote meanwhile."""


class WindowAudit:
    """Compares the values of all features of a family at one moment, not the states of both."""

    def __init__(self, backends: Backends, clock: Clock) -> None:
        self._online = backends.online
        self._states = WindowStates(backends)
        self._clock = clock

    async def suspects(self, family: FeatureDef, entity_ids: Sequence[str]) -> list[str]:
        """Return the entities whose values differed, or changed while they were compared."""
        compared = await self._compared(family, entity_ids)
        return [entity_id for entity_id in entity_ids if compared[entity_id] != []]

    async def confirmed(
        self, family: FeatureDef, entity_ids: Sequence[str], pauses: Sequence[float]
    ) -> list[Difference]:
        """Return the differences that are still there after all pauses."""
        compared: Compared = {}
        for pause in pauses:
            if not entity_ids:
                break
            await self._clock.sleep(pause)
            compared = await self._compared(family, entity_ids)
            entity_ids = [entity_id for entity_id in entity_ids if compared[entity_id] != []]
        return [one for entity_id in entity_ids for one in compared[entity_id] or ()]

    async def _compared(self, family: FeatureDef, entity_ids: Sequence[str]) -> Compared:
        """Compare some entities.

        A contribution is in history and in the state with one commit, so history as it was while
        a state did not change has what the state has.
        """
        entity, series, now = family.entity.name, family.series, self._clock.micros()
        before = await self._online.get(entity, entity_ids)
        made = await self._states.made_again(family, entity_ids, now)
        after = await self._online.get(entity, entity_ids)
        return {
            entity_id: _differences(family, entity_id, cells.get(series), made[entity_id], now)
            if cells.get(series) == later.get(series)
            else None
            for entity_id, cells, later in zip(entity_ids, before, after, strict=True)
        }


def _differences(
    family: FeatureDef, entity_id: str, cell: Cell | None, made: Cell | None, now: int
) -> list[Difference]:
    online, history = (values_at(family, one, now) for one in (cell, made))
    if online is None or history is None:
        return []  # a state of another plan is made again when it is read
    return [
        Difference(
            family.entity.name,
            entity_id,
            name,
            _stored(cell, online[name]),
            _stored(made, history[name]),
        )
        for name in online
        if _encode(online[name]) != _encode(history[name])
    ]


def _stored(cell: Cell | None, value: object) -> StoredValue | None:
    return (
        None if cell is None else StoredValue(msgspec.Raw(_encode(value)), from_micros(cell.as_of))
    )
