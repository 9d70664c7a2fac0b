"""Comparing two versions of a feature: the values that are served, and a sample of history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from headwater.declarations.features import FeatureDef
from headwater.declarations.series import declared_entry, shape_of
from headwater.errors import InvalidInputError
from headwater.features.services import Services
from headwater.features.window_states import WindowStates, values_at
from headwater.history.backfill.steps import no_backfill
from headwater.history.versions import unfinished
from headwater.model.backfills import Comparison, Counts, Differences, ValuePair, is_equal
from headwater.model.catalog import FeatureVersion
from headwater.model.values import Cell, Cells
from headwater.ports import HistoryRow

_PAGE = 1_000
_HISTORY_ENTITIES = 100
_HISTORY_ROWS = 1_000

_encode = msgspec.json.Encoder(order="deterministic").encode


async def compare_versions(services: Services, definition: FeatureDef, *, limit: int) -> Comparison:
    """Compare the version that is served with the one that a backfill has made.

    All values that are served are compared, and the history of some entities.
    """
    state = await services.backends.catalog.load()
    entry = declared_entry(state, definition.name, services.registry.features)
    new = unfinished(entry)
    if entry is None or entry.active is None or new is None:
        raise InvalidInputError(no_backfill(definition.name))
    if new.state == "building":
        raise InvalidInputError(
            f"version {new.number} of feature {definition.name!r} is being built and cannot be "
            f"compared; wait until `headwater backfill status {definition.name}` shows another "
            "state"
        )
    old, backends = entry.active, services.backends
    counts, numbers, examples = Counts(), Differences(), list[ValuePair]()
    sample: list[str] = []
    async for pair in _pairs(services, definition, (old, new)):
        counts = counts.plus(pair.old, pair.new)
        is_same = False
        if pair.old is not None and pair.new is not None:
            is_same = is_equal(pair.old, pair.new)
            before, after = msgspec.json.decode(pair.old), msgspec.json.decode(pair.new)
            if {type(before), type(after)} <= {int, float}:
                numbers = numbers.plus(float(after - before))
        if not is_same and len(examples) < limit:
            examples.append(pair)
        if len(sample) < _HISTORY_ENTITIES:
            sample.append(pair.entity_id)
    olds, news = [
        await backends.offline.rows(series, sample, limit=_HISTORY_ROWS)
        for series in (old.series, new.series)
    ]
    history = Counts()
    for rows in zip(olds, news, strict=True):
        history = _compare_history(*rows, history, is_family=definition.windows is not None)
    return Comparison(
        feature=definition.name,
        old=old.number,
        new=new.number,
        online=counts,
        numbers=numbers if numbers.count else None,
        examples=examples,
        sampled_entities=len(sample),
        history=history,
    )


async def _pairs(
    services: Services, definition: FeatureDef, versions: Sequence[FeatureVersion]
) -> AsyncIterator[ValuePair]:
    """Yield the entities that have a value of either version, all of one moment."""
    online, now = services.backends.online, services.clock.micros()
    states = WindowStates(services.backends)
    entity, after = definition.entity.name, ""
    while ids := await online.entity_ids(entity, after=after, limit=_PAGE):
        after = ids[-1]
        cells = dict(zip(ids, await online.get(entity, ids), strict=True))
        values = []
        for version in versions:
            if definition.windows is None or not version.has_structure(
                shape_of(definition).structure
            ):
                values.append([_served(held, version.series, now) for held in cells.values()])
            else:
                family = replace(definition, series=version.series)
                values.append(await _windows(family, cells, states, now))
        for pair in map(ValuePair, ids, *values):
            if pair.old is not None or pair.new is not None:
                yield pair


async def _windows(
    family: FeatureDef, cells: Mapping[str, Cells], states: WindowStates, now: int
) -> list[msgspec.Raw | None]:
    """Return all values of a family of each entity as an object; None if it has no state."""
    held = {entity_id: of_one.get(family.series) for entity_id, of_one in cells.items()}
    outdated = [i for i, cell in held.items() if values_at(family, cell, now) is None]
    held |= await states.made_again(family, outdated, now)
    return [
        None if cell is None else msgspec.Raw(_encode(values_at(family, cell, now)))
        for cell in held.values()
    ]


def _served(cells: Mapping[str, Cell], series: str, now: int) -> msgspec.Raw | None:
    cell = cells.get(series)
    return None if cell is None or cell.expired(now) else cell.value


def _compare_history(
    before: Sequence[HistoryRow], after: Sequence[HistoryRow], counts: Counts, *, is_family: bool
) -> Counts:
    """Count the moments of one entity, back to the same one for both versions."""
    start = max(_reaches_to(before), _reaches_to(after))
    olds, news = (_by_moment(rows, start, is_family=is_family) for rows in (before, after))
    for moment in sorted(olds.keys() | news.keys()):
        counts = counts.plus(olds.get(moment), news.get(moment))
    return counts


def _reaches_to(rows: Sequence[HistoryRow]) -> datetime:
    """Return the moment back to which the newest rows are complete."""
    return rows[-1].as_of if len(rows) == _HISTORY_ROWS else datetime.min.replace(tzinfo=UTC)


def _by_moment(
    rows: Sequence[HistoryRow], start: datetime, *, is_family: bool
) -> dict[datetime, bytes]:
    """Return the last value of each moment, or all contributions; the rows are newest first."""
    if not is_family:
        return {row.as_of: row.value for row in reversed(rows) if row.as_of >= start}
    moments: dict[datetime, list[bytes]] = {}
    for row in rows:
        if row.as_of >= start:
            moments.setdefault(row.as_of, []).append(row.value)
    return {at: b"[%b]" % b",".join(sorted(values)) for at, values in moments.items()}
