"""Past values of other features, as the handler of a past event sees them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from headwater.core.clock import MICROSECOND, from_micros, to_micros
from headwater.core.sql_literals import text, texts
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.history.backfill.event_file import StoredEvent
from headwater.history.one_value import NOT_EVENTS
from headwater.model.values import Cell
from headwater.ports import OfflineStore, PastValue, Point


class _Row(msgspec.Struct, frozen=True, gc=False):
    """A value of history, with the id of the event that caused it."""

    cell: Cell
    cause: str = ""


class _Page(msgspec.Struct, frozen=True):
    """The entities and events of a page, and the span of time that they are about."""

    order: Mapping[tuple[str, str], int] = {}
    """The place of each event, by entity id and event id."""
    ids: frozenset[str] = frozenset()
    moments: frozenset[int] = frozenset()
    first: int = 0
    last: int = 0


class PastValues:
    """Values of other features in the past.

    The rows of a page's entities are loaded at once, when the first of its handlers reads a
    feature. Values of another entity are loaded one by one, together with the ones that
    other handlers wait for; from the second one of a page on, for all moments of the page.
    """

    def __init__(
        self,
        offline: OfflineStore,
        registry: Registry,
        definition: FeatureDef,
        pruned: datetime | None,
    ) -> None:
        self._offline = offline
        self.pruned = pruned
        self._earliest = 0 if pruned is None else to_micros(pruned)
        self._places = {name: place for place, name in enumerate(registry.features)}
        self._own_place = self._places[definition.name]
        self._page = _Page()
        self._rows: dict[str, dict[str, list[_Row]]] = {}
        self._single: dict[tuple[str, str, int], Cell | None] = {}
        self._read: set[tuple[str, str]] = set()
        self._awaited: dict[str, set[tuple[str, int]]] = {}
        self._loading = asyncio.Lock()

    def begin_page(self, events: Sequence[StoredEvent], moments: Sequence[int]) -> None:
        """Forget the rows of the page before.

        ``moments`` are the times of the events, and of the values that their entities have.
        """
        order = {(e.event.entity_id, e.event.event_id): n for n, e in enumerate(events)}
        ids = frozenset(e.event.entity_id for e in events)
        self._page = _Page(order, ids, frozenset(moments), min(moments), max(moments))
        self._rows = {}
        self._single = {}
        self._read = set()

    def is_pruned(self, about: int) -> bool:
        """Return whether values that were true at a moment may have been pruned."""
        return about < self._earliest

    def value(
        self, feature: FeatureDef, entity_id: str, stored: StoredEvent, about: int
    ) -> Cell | None:
        """Return a value true at a moment that has been loaded; raise KeyError if it has not."""
        if entity_id in self._page.ids:
            rows = self._rows[feature.series].get(entity_id, ())
            cell = self._last(feature, rows, stored, about)
        else:
            cell = self._single[feature.series, entity_id, about]
        return None if cell is None or cell.expired(about) else cell

    def _last(
        self, feature: FeatureDef, rows: Sequence[_Row], stored: StoredEvent, about: int
    ) -> Cell | None:
        """Return the last value that the event's handler could have seen."""
        place = bisect_right(rows, about, key=lambda row: row.cell.as_of)
        while place:
            row = rows[place - 1]
            if row.cell.as_of < about or self._is_before(feature, row, stored):
                return row.cell
            place -= 1
        return None

    def _is_before(self, feature: FeatureDef, row: _Row, stored: StoredEvent) -> bool:
        """Return whether a value of the same moment was there when the event was handled."""
        event = stored.event
        if row.cause == event.event_id:
            # Other handlers of the event, among them this one, may have set it as well.
            is_own = event.event_type in feature.triggers
            return is_own and self._places[feature.name] < self._own_place
        cause = self._page.order.get((event.entity_id, row.cause))
        if cause is not None:
            return cause < self._page.order[event.entity_id, event.event_id]
        return row.cause in NOT_EVENTS or row.cell.written_at <= stored.received_at

    async def load(self, feature: FeatureDef, entity_id: str, about: int) -> None:
        """Load the value of one entity or, of an entity of the page, the values of all of them."""
        if entity_id in self._page.ids:
            async with self._loading:
                if feature.series not in self._rows:
                    self._rows[feature.series] = await self._page_rows(feature)
            return
        moments = self._awaited.setdefault(feature.series, set())
        moments.add((entity_id, about))
        if (feature.series, entity_id) in self._read:
            moments |= {(entity_id, moment) for moment in self._page.moments}
        self._read.add((feature.series, entity_id))
        async with self._loading:
            if (feature.series, entity_id, about) in self._single:
                return
            # Also the values that other handlers have come to wait for meanwhile.
            keys = list(self._awaited.pop(feature.series))
            points = [Point(awaited, from_micros(moment)) for awaited, moment in keys]
            past_rows = await self._offline.as_of([feature.series], points)
            for (awaited, moment), (past,) in zip(keys, past_rows, strict=True):
                self._single[feature.series, awaited, moment] = _cell(feature, past)

    async def _page_rows(self, feature: FeatureDef) -> dict[str, list[_Row]]:
        """Return the rows of the page's span, after the last one before it, for each entity."""
        page = self._page
        points = [Point(entity_id, from_micros(page.first - 1)) for entity_id in page.ids]
        before = await self._offline.as_of([feature.series], points)
        rows: dict[str, list[_Row]] = {entity_id: [] for entity_id in page.ids}
        for point, (past,) in zip(points, before, strict=True):
            cell = _cell(feature, past)
            if cell is not None:
                rows[point.entity_id].append(_Row(cell))
        for series, is_converted in feature.chain:
            span = await self._offline.query(_span(series, page), {})
            for entity_id, value, as_of, written_at, cause in span.rows:
                own = feature.codec.converted(value.encode()) if is_converted else value.encode()
                cell = _cell(feature, PastValue(own, as_of, written_at))
                if cell is not None:
                    rows[entity_id].append(_Row(cell, cause))
        if len(feature.chain) > 1:
            for of_entity in rows.values():
                of_entity.sort(key=lambda row: (row.cell.as_of, row.cell.written_at))
        return rows


def _span(series: str, page: _Page) -> str:
    return (
        "SELECT entity_id, CAST(value AS VARCHAR) AS value, as_of, written_at, cause"
        f" FROM feature_history WHERE feature = {text(series)}"
        f" AND as_of >= {_moment(page.first)} AND as_of <= {_moment(page.last)}"
        f" AND entity_id IN ({texts(sorted(page.ids))})"
        " ORDER BY entity_id, as_of, written_at"
    )


def _moment(micros: int) -> str:
    return f"TIMESTAMPTZ {text(from_micros(micros).isoformat(sep=' ', timespec='microseconds'))}"


def _cell(feature: FeatureDef, past: PastValue | None) -> Cell | None:
    """Return a value as a cell that expires by the moment it is of."""
    if past is None:
        return None
    as_of = to_micros(past.as_of)
    expires_at = as_of + feature.ttl // MICROSECOND if feature.ttl else None
    written_at = to_micros(past.written_at)
    return Cell(msgspec.Raw(past.value), as_of, written_at, expires_at, derived=False)
