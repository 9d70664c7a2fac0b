"""All windows of a family for one entity, with the tiles that their values are made of."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.core.clock import from_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.features.call_scope import current_scope
from headwater.features.reader import Reader
from headwater.features.window_reads import FamilyRead
from headwater.model.features import FeatureRow
from headwater.model.values import Cell
from headwater.model.windows import EntityWindows, WindowLevel, WindowTile, WindowValue
from headwater.windows.plan import WindowPlan
from headwater.windows.state import WindowState, decode_state, tile_values


class WindowViews:
    """The windows of entities in an open store."""

    def __init__(self, registry: Registry, reader: Reader) -> None:
        self._registry = registry
        self._reader = reader

    async def read(self, name: str, entity_id: str | int) -> EntityWindows:
        """Return the windows of a family, which is named itself or by one of its features."""
        family = family_of(self._registry, name)
        read, cell, moment = await self._reader.windows(family, entity_id)
        row = read.row(cell, moment, tracked=False) or {}
        if current_scope().reads is not None:
            # Reads that are tracked are judged, and in a replay they are the recorded ones.
            (row,) = await self._reader.read(read.names, [entity_id])
        return _view(family, family.entity.text_id(entity_id), read, cell, moment, row)


def _view(
    family: FeatureDef,
    text_id: str,
    read: FamilyRead,
    cell: Cell | None,
    moment: int,
    row: FeatureRow,
) -> EntityWindows:
    state = None if cell is None else decode_state(read.plan, cell.value)
    return EntityWindows(
        family=family.name,
        entity=family.entity.name,
        entity_id=text_id,
        as_of=from_micros(moment),
        last_fold=None if cell is None else from_micros(cell.written_at),
        values=[
            WindowValue(
                feature=feature.name,
                aggregate=member.aggregate.text,
                window=member.window.name,
                value=row[feature.name].value,
                source=row[feature.name].source,
            )
            for feature, member in zip(read.features, read.members, strict=True)
        ],
        levels=[] if state is None else list(_levels(read.plan, state, moment)),
    )


def family_of(registry: Registry, name: str) -> FeatureDef:
    """Return the family that is named itself or by one of its features."""
    feature = registry.feature(name)
    if feature.window is not None:
        feature = registry.feature(feature.window.family)
    if feature.windows is None:
        raise InvalidInputError(
            f"feature {name!r} has no windows; name a feature that is declared with window="
        )
    return feature


def _levels(plan: WindowPlan, state: WindowState, moment: int) -> Iterator[WindowLevel]:
    for hop in plan.levels:
        first = plan.floor(hop, moment)
        yield WindowLevel(
            hop_us=hop,
            windows=[window.name for window in plan.windows if window.hop == hop],
            tiles=[
                WindowTile(
                    start=from_micros(number * hop),
                    end=from_micros((number + 1) * hop),
                    values=values,
                )
                for number, values in tile_values(plan, state, hop)
                if number >= first
            ],
        )
