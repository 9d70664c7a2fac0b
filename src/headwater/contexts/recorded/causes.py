"""The events behind the values of a recorded context, from history and the event log.

They are not part of the record: history may have been pruned, or written again by a backfill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from headwater.core.clock import MICROSECOND, from_micros
from headwater.declarations.meanings import meanings_during, named_at
from headwater.declarations.registry import Registry
from headwater.history.backfill.steps import KEPT_FRESH
from headwater.history.causes import CausedRow, events_behind
from headwater.model.catalog import CatalogEntry, CatalogState
from headwater.model.contexts import ContextCauses, ValueCause
from headwater.model.values import UNDATED
from headwater.ports import HistoryRow, OfflineStore
from headwater.records.core import Core, FeatureInput, disclosed

MOST_VALUES = 100
"""Values of one context whose causes are looked up: each is a read of history."""

_SAME_MOMENT = 100
"""Rows of one value and one moment that are compared with the recorded one."""


class _Stored(NamedTuple):
    """A stored value by the columns of history; one of the series has it."""

    series: tuple[str, ...]
    entity_id: str
    as_of: datetime
    written_at: datetime


class _Place(NamedTuple):
    """The place of a value in a core."""

    read: int
    input: int | None


async def causes_of(
    core: Core, registry: Registry, catalog: CatalogState, offline: OfflineStore
) -> ContextCauses:
    """Return the causes of all values that a context read."""
    places: dict[_Stored | None, list[_Place]] = {}
    for place, value in _values(core):
        if value.written_at is not None:
            as_of = value.as_of or from_micros(UNDATED)
            stored = _stored(core, value, as_of, value.written_at, registry, catalog)
            places.setdefault(stored, []).append(place)
    sought = [stored for stored in places if stored is not None][:MOST_VALUES]
    rows = await asyncio.gather(*(_row(offline, stored) for stored in sought))
    row_of = {stored: row for stored, row in zip(sought, rows, strict=True) if row is not None}
    types = {trigger for feature in registry.features.values() for trigger in feature.triggers}
    caused = [CausedRow(stored.entity_id, row) for stored, row in row_of.items()]
    events = await events_behind(offline, caused, types)
    causes = [
        ValueCause(read=at.read, input=at.input, cause=row.cause, event=event)
        for (stored, row), event in zip(row_of.items(), events, strict=True)
        for at in places[stored]
    ]
    return ContextCauses(
        context_id=core.context_id, causes=causes, is_complete=len(row_of) == len(places)
    )


def _values(core: Core) -> Iterator[tuple[_Place, FeatureInput]]:
    for at, read in enumerate(core.features):
        yield _Place(at, None), read
        for number, inner in enumerate(read.inputs):
            yield _Place(at, number), inner


def _stored(
    core: Core,
    value: FeatureInput,
    as_of: datetime,
    written_at: datetime,
    registry: Registry,
    catalog: CatalogState,
) -> _Stored | None:
    """Return where history has a stored value; None if that is withheld or unknown."""
    began, ended, name = core.timing.started_at, core.created_at, value.feature
    entity_id, owner = disclosed(value.entity_id), named_at(catalog, name, began)
    series: list[str | None] = []
    if isinstance(owner, CatalogEntry):
        # A process may have served the version before for a moment longer.
        during = meanings_during(owner.meanings, began - KEPT_FRESH, ended)
        series = [meaning.series for meaning in during]
    elif owner is None and name in registry.features:
        series = [registry.features[name].series]
    stored_series = tuple(dict.fromkeys(stored for stored in series if stored is not None))
    return (
        _Stored(stored_series, entity_id, as_of, written_at)
        if stored_series and entity_id is not None
        else None
    )


async def _row(offline: OfflineStore, stored: _Stored) -> HistoryRow | None:
    start, end = stored.as_of, stored.as_of + MICROSECOND
    for series in reversed(stored.series):
        rows = await offline.rows(
            series, stored.entity_id, start=start, end=end, limit=_SAME_MOMENT
        )
        for row in rows:
            if row.written_at == stored.written_at:
                return row
    return None
