"""The events behind the values of a recorded context, from history and the event log.

They are not part of the record: history may have been pruned, or written again by a backfill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from headwater.core.clock import MICROSECOND
from headwater.declarations.registry import Registry
from headwater.history.causes import CausedRow, CauseEvent, events_behind
from headwater.ports import HistoryRow, OfflineStore
from headwater.records.core import Core, FeatureInput, disclosed

MOST_VALUES = 100
"""Values of one context whose causes are looked up: each is a read of history."""

_SAME_MOMENT = 100
"""Rows of one value and one moment that are compared with the recorded one."""


class ValueCause(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of a value that a context read: an event id, ``set``, ``computed``…

    `read` is the place of a feature in the explanation, `input` the place among its inputs.
    `event` is the event with that id, if the log still has it.
    """

    read: int
    input: int | None = None
    cause: str
    event: CauseEvent | None = None


class ContextCauses(msgspec.Struct, frozen=True, kw_only=True):
    """The causes of the values that a context read, where history knows them.

    `is_complete` is False if the context read more values than are looked up.
    """

    context_id: str
    causes: Sequence[ValueCause]
    is_complete: bool


class _Stored(NamedTuple):
    """A stored value by the columns of history."""

    series: str
    entity_id: str
    as_of: datetime
    written_at: datetime


class _Place(NamedTuple):
    """The place of a value in a core."""

    read: int
    input: int | None


async def causes_of(core: Core, registry: Registry, offline: OfflineStore) -> ContextCauses:
    """Return the causes of all values that a context read."""
    places: dict[_Stored, list[_Place]] = {}
    for place, value in _values(core):
        stored = _stored(value, registry)
        if stored is not None:
            places.setdefault(stored, []).append(place)
    sought = list(places)[:MOST_VALUES]
    rows = await asyncio.gather(*(_row(offline, stored) for stored in sought))
    found = {stored: row for stored, row in zip(sought, rows, strict=True) if row is not None}
    types = {each for feature in registry.features.values() for each in feature.triggers}
    caused = [CausedRow(stored.entity_id, row) for stored, row in found.items()]
    events = await events_behind(offline, caused, types)
    causes = [
        ValueCause(read=at.read, input=at.input, cause=row.cause, event=event)
        for (stored, row), event in zip(found.items(), events, strict=True)
        for at in places[stored]
    ]
    return ContextCauses(
        context_id=core.context_id, causes=causes, is_complete=len(places) <= MOST_VALUES
    )


def _values(core: Core) -> Iterator[tuple[_Place, FeatureInput]]:
    for at, read in enumerate(core.features):
        yield _Place(at, None), read
        for number, each in enumerate(read.inputs):
            yield _Place(at, number), each


def _stored(value: FeatureInput, registry: Registry) -> _Stored | None:
    """Return where history has a value; None if it was computed, is withheld or not declared."""
    feature, entity_id = registry.features.get(value.feature), disclosed(value.entity_id)
    if feature is None or entity_id is None or value.as_of is None or value.written_at is None:
        return None
    return _Stored(feature.series, entity_id, value.as_of, value.written_at)


async def _row(offline: OfflineStore, stored: _Stored) -> HistoryRow | None:
    start, end = stored.as_of, stored.as_of + MICROSECOND
    rows = await offline.rows(
        stored.series, stored.entity_id, start=start, end=end, limit=_SAME_MOMENT
    )
    return next((row for row in rows if row.written_at == stored.written_at), None)
