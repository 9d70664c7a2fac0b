"""Values of an earlier type, converted wherever they are read from a store.

A converted version has a series of its own and names those of the versions before it. What is read
under it is the last value of any of them, and one of an earlier type is converted: because of the
series that it is in, whether or not it would fit the declared type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from headwater.core.codec import unconverted
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Call, Interceptor
from headwater.declarations.registry import Registry
from headwater.errors import FeatureValueError
from headwater.model.values import Cell, Cells, EntityKey, decode_cells, encode_cells
from headwater.ports import Batch, EntityState, HistoryRow, PastValue, Standing


class _HasMoment(Protocol):
    """A stored value: a cell, or a value of history."""

    @property
    def as_of(self) -> Any: ...


V = TypeVar("V", bound=_HasMoment)


def last_of(feature: FeatureDef, values: Mapping[str, V | None]) -> tuple[V, bool] | None:
    """Return the last value of a feature's series, and whether it has to be converted.

    Of values of one moment, that of the later version counts.
    """
    newest: tuple[V, bool] | None = None
    for series, is_converted in feature.chain:
        value = values.get(series)
        if value is not None and (newest is None or value.as_of > newest[0].as_of):
            newest = value, is_converted
    return newest


def last_cell(feature: FeatureDef, values: Mapping[str, Cell | None]) -> Cell | None:
    """Return the last cell of a feature's series; one that cannot be converted is marked."""
    newest = last_of(feature, values)
    if newest is None or not newest[1]:
        return None if newest is None else newest[0]
    cell = newest[0]
    try:
        value = feature.codec.converted(cell.value)
    except FeatureValueError:
        # Others of the entity can be read; a read of this one raises the same error again.
        value = unconverted(cell.value)
    return replace(cell, value=msgspec.Raw(value))


def conversions(registry: Registry) -> list[Interceptor]:
    """Return the interceptor that converts the values of reads, if features declare convert=."""
    if not any(feature.codec.convert for feature in registry.features.values()):
        return []
    registry.is_converting = True
    return [_Conversions(registry)]


class _Conversions(Interceptor):
    """The reads of ports, with the converted values of earlier versions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.steps = {
            "online.get": self.get,
            "online.get_packed": self.get_packed,
            "online.get_with_waiting": self.get_with_waiting,
            "online.get_state": self.get_state,
            "bus.read": self.read,
            "offline.as_of": self.as_of,
            "offline.latest": self.latest,
            "offline.rows": self.rows,
        }

    def _of_entity(self, entity: str) -> list[FeatureDef]:
        declared = self._registry.features.values()
        return [
            feature for feature in declared if feature.lineage and feature.entity.name == entity
        ]

    def _of_series(self, series: str) -> FeatureDef | None:
        """Return a feature that reads a series, perhaps converted, as it is read there."""
        for feature in self._registry.features.values():
            if any(series == one for one, _ in feature.lineage):
                return feature if feature.series == series else replace(feature, series=series)
        return None

    def _cells(self, entity: str, cells: Cells) -> Cells:
        converted = dict(cells)
        for feature in self._of_entity(entity):
            cell = last_cell(feature, cells)
            if cell is not None:
                converted[feature.series] = cell
        return converted

    async def get(self, inner: Call, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        return [self._cells(entity, cells) for cells in await inner(entity, entity_ids)]

    async def get_packed(
        self, inner: Call, entity: str, entity_ids: Sequence[str]
    ) -> list[bytes | msgspec.Raw]:
        packed: list[bytes | msgspec.Raw] = await inner(entity, entity_ids)
        if not self._of_entity(entity):
            return packed
        return [encode_cells(self._cells(entity, decode_cells(cells))) for cells in packed]

    async def get_with_waiting(
        self, inner: Call, entity: str, entity_ids: Sequence[str]
    ) -> list[Standing]:
        standings: list[Standing] = await inner(entity, entity_ids)
        return [
            Standing(
                self._cells(entity, standing.cells),
                standing.waiting_since,
                self._series(entity, standing.unhandled),
            )
            for standing in standings
        ]

    def _series(self, entity: str, series: frozenset[str]) -> frozenset[str]:
        """Return series with those of features that read one of them."""
        readers = self._of_entity(entity) if series else ()
        return series | {
            reader.series for reader in readers if any(one in series for one, _ in reader.chain)
        }

    async def get_state(self, inner: Call, key: EntityKey) -> EntityState:
        return self._state(key, await inner(key))

    async def read(self, inner: Call, *arguments: Any) -> list[Batch]:
        return [
            replace(
                batch, states={key: self._state(key, state) for key, state in batch.states.items()}
            )
            for batch in await inner(*arguments)
        ]

    def _state(self, key: EntityKey, state: EntityState) -> EntityState:
        return replace(state, cells=self._cells(key[0], state.cells))

    async def as_of(
        self, inner: Call, features: Sequence[str], points: Sequence[Any], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        readers = {series: self._of_series(series) for series in features}
        earlier = [one for reader in readers.values() if reader for one, _ in reader.chain]
        every_series = list(dict.fromkeys([*features, *earlier]))
        answers = await inner(every_series, points, known=known)
        rows = [dict(zip(every_series, row, strict=True)) for row in answers]
        return [[_past(readers[series], series, row) for series in features] for row in rows]

    async def latest(
        self, inner: Call, entity: str, **page: Any
    ) -> list[tuple[str, dict[str, PastValue]]]:
        pasts, features = await inner(entity, **page), self._of_entity(entity)
        for _, values in pasts:
            last = {feature.series: _past(feature, feature.series, values) for feature in features}
            values |= {series: value for series, value in last.items() if value is not None}
        return list(pasts)

    async def rows(
        self,
        inner: Call,
        series: str,
        entity_ids: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        feature = self._of_series(series)
        of_entities: list[list[HistoryRow]] = [[] for _ in entity_ids]
        for one, is_converted in feature.chain if feature else ((series, False),):
            pages = await inner(one, entity_ids, start=start, end=end, limit=limit)
            for rows, page in zip(of_entities, pages, strict=True):
                rows += [
                    _converted(feature, row) if is_converted and feature else row for row in page
                ]
        for rows in of_entities:
            rows.sort(key=lambda row: (row.as_of, row.written_at), reverse=True)
        return [rows[:limit] for rows in of_entities]


R = TypeVar("R", PastValue, HistoryRow)


def _past(
    feature: FeatureDef | None, series: str, values: Mapping[str, PastValue | None]
) -> PastValue | None:
    """Return a value of history under a series, converted if it is of an earlier type."""
    newest = None if feature is None else last_of(feature, values)
    if feature is None or newest is None:
        return values.get(series)
    return _converted(feature, newest[0]) if newest[1] else newest[0]


def _converted(feature: FeatureDef, past: R) -> R:
    return replace(past, value=feature.codec.converted(past.value))
