"""Mending the present from the past: restoring online values from history, and comparing both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import msgspec

from headwater.core.clock import MICROSECOND, Clock, from_micros, to_micros
from headwater.core.values import Cell, Cells
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import FeatureValueError
from headwater.ports import OfflineStore, OnlineStore, PastValue, Point

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Told how many entities are done and how many there are."""

_PAGE = 5_000
_PORTION = 500
_SUSPECTS = 500
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
# A server of the past takes over what was committed a moment later.
_PAUSES = (0.0, 0.2, 1.0, 4.0)

_COUNT = "SELECT entity, count(DISTINCT entity_id) FROM feature_history GROUP BY entity"

Past = Mapping[str, PastValue]
"""The last value of every feature of one entity."""

Features = Mapping[str, FeatureDef]
"""The kept features of one entity, by name."""


class RebuildReport(msgspec.Struct, frozen=True):
    """How many entities history knows, and how many values of them were offered."""

    entity_ids: int
    values: int


class Seen(msgspec.Struct, frozen=True):
    """A value as one of the two sides has it."""

    value: msgspec.Raw
    as_of: datetime


class Difference(msgspec.Struct, frozen=True):
    """A value on which the two sides do not agree; one that has none says so by None."""

    entity: str
    entity_id: str
    feature: str
    online: Seen | None
    history: Seen | None


class AuditReport(msgspec.Struct, frozen=True):
    """What was compared and what came of it; not complete if there were more than asked for."""

    entity_ids: int
    values: int
    differences: Sequence[Difference]
    not_compared: Sequence[str]
    complete: bool


class _Suspect(NamedTuple):
    """A value on which the two sides did not agree when they were last read."""

    feature: FeatureDef
    entity_id: str
    cell: Cell | None = None
    past: PastValue | None = None

    @property
    def difference(self) -> Difference:
        cell, past = self.cell, self.past
        return Difference(
            self.feature.entity.name,
            self.entity_id,
            self.feature.name,
            None if cell is None else Seen(cell.value, from_micros(cell.as_of)),
            None if past is None else Seen(msgspec.Raw(past.value), past.as_of),
        )


class _Tally:
    """Counts what has been done so far, and tells it."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self.entity_ids = 0
        self.values = 0

    def step(self, entity_ids: int, values: int) -> None:
        self.entity_ids += entity_ids
        self.values += values
        if self._progress is not None:
            self._progress(self.entity_ids, max(self.entity_ids, self._total))


class Repair:
    """Restores and compares the values of every declared feature that is kept."""

    def __init__(
        self, registry: Registry, online: OnlineStore, offline: OfflineStore, clock: Clock
    ) -> None:
        self._registry = registry
        self._online = online
        self._offline = offline
        self._clock = clock

    async def rebuild(self, progress: Progress | None = None) -> RebuildReport:
        """Writes the last values of history online, except where the online one is newer.

        A value whose time to live is over is left in history: nobody would be served it.
        """
        kept = self._kept()
        tally = _Tally(progress, await self._count(kept) if progress else 0)
        for entity, features in kept.items():
            after = ""
            while page := await self._offline.latest(entity, after=after, limit=_PAGE):
                for portion in _portions(page):
                    values = self._alive(features, portion)
                    await self._online.restore(entity, values)
                    tally.step(len(portion), sum(map(len, values.values())))
                after = page[-1][0]
        return RebuildReport(tally.entity_ids, tally.values)

    async def audit(self, limit: int, progress: Progress | None = None) -> AuditReport:
        """Compares the online values with the last ones of history, up to so many differences.

        On-demand features are left out: what is kept of them is a cache. While workers run, both
        sides change between two reads; a difference counts if it is there however often both are
        read again.
        """
        kept = self._kept()
        tally = _Tally(progress, await self._count(kept) if progress else 0)
        found: list[Difference] = []
        async with aclosing(self._differences(kept, tally)) as differences:
            async for difference in differences:
                found.append(difference)
                if len(found) > limit:
                    break
        return AuditReport(
            tally.entity_ids,
            tally.values,
            found[:limit],
            [name for own in kept.values() for name, f in own.items() if f.mode == "on_demand"],
            complete=len(found) <= limit,
        )

    def _kept(self) -> dict[str, Features]:
        kept: dict[str, dict[str, FeatureDef]] = {}
        for feature in self._registry.features.values():
            if feature.kept:
                kept.setdefault(feature.entity.name, {})[feature.name] = feature
        return dict(kept)

    async def _count(self, kept: Mapping[str, Features]) -> int:
        """How many entities history knows."""
        found = await self._offline.query(_COUNT, {})
        return sum(count for entity, count in found.rows if entity in kept)

    def _alive(self, features: Features, portion: Sequence[tuple[str, Past]]) -> dict[str, Cells]:
        """The values of some entities as they are kept online, without those that are over."""
        now = self._clock.micros()
        found: dict[str, Cells] = {}
        for entity_id, past in portion:
            cells = {
                name: _cell(features[name], value)
                for name, value in past.items()
                if name in features and not _is_over(features[name], value, now)
            }
            if cells:
                found[entity_id] = cells
        return found

    async def _differences(
        self, kept: Mapping[str, Features], tally: _Tally
    ) -> AsyncGenerator[Difference]:
        for entity, features in kept.items():
            compared = {name: f for name, f in features.items() if f.mode != "on_demand"}
            suspects: list[_Suspect] = []
            async for portion in self._known(entity):
                suspects += await self._compare(entity, compared, portion, tally)
                # Reading again takes a while, so it is done for many at a time.
                if len(suspects) >= _SUSPECTS:
                    for difference in await self._confirmed(entity, suspects):
                        yield difference
                    suspects = []
            for difference in await self._confirmed(entity, suspects):
                yield difference

    async def _known(self, entity: str) -> AsyncIterator[dict[str, Past]]:
        """Every id that either side knows, in sorted order, with what history has of it."""
        after = ""
        while True:
            past = dict(await self._offline.latest(entity, after=after, limit=_PAGE))
            online = await self._online.entity_ids(entity, after=after, limit=_PAGE)
            if not past and not online:
                return
            # Beyond the end of its page a side may know more ids than were read.
            after = min(max(ids) for ids in (past, online) if ids)
            for portion in _portions(sorted(i for i in {*past, *online} if i <= after)):
                yield {entity_id: past.get(entity_id, {}) for entity_id in portion}

    async def _compare(
        self, entity: str, features: Features, pasts: Mapping[str, Past], tally: _Tally
    ) -> list[_Suspect]:
        """The values of some entities on which the two sides do not agree at first sight."""
        suspects = []
        values = 0
        found = await self._online.get(entity, list(pasts))
        now = self._clock.micros()
        for (entity_id, past), cells in zip(pasts.items(), found, strict=True):
            for name in features.keys() & {*past, *cells}:
                values += 1
                feature, cell, value = features[name], cells.get(name), past.get(name)
                if not (_kept_up(feature, cell, value, now) and _has(feature, cell, value)):
                    suspects.append(_Suspect(feature, entity_id))
        tally.step(len(pasts), values)
        return suspects

    async def _confirmed(self, entity: str, suspects: Sequence[_Suspect]) -> list[Difference]:
        for pause in _PAUSES:
            if not suspects:
                break
            suspects = await self._look_again(entity, suspects, pause)
        return [suspect.difference for suspect in suspects]

    async def _look_again(
        self, entity: str, suspects: Sequence[_Suspect], pause: float
    ) -> list[_Suspect]:
        """The suspects whose sides still do not agree.

        History is read before and after the online value: whatever history had before, online is
        at least as new; and whatever is online, history has by then.
        """
        ends = await self._past(suspects, [_END_OF_TIME] * len(suspects))
        found = await self._online.get(entity, [suspect.entity_id for suspect in suspects])
        cells = [
            own.get(suspect.feature.name) for suspect, own in zip(suspects, found, strict=True)
        ]
        await self._clock.sleep(pause)
        moments = [_END_OF_TIME if cell is None else from_micros(cell.as_of) for cell in cells]
        thens = await self._past(suspects, moments)
        now = self._clock.micros()
        again = []
        for suspect, cell, end, then in zip(suspects, cells, ends, thens, strict=True):
            feature = suspect.feature
            if not (_kept_up(feature, cell, end, now) and _has(feature, cell, then)):
                again.append(_Suspect(feature, suspect.entity_id, cell, end))
        return again

    async def _past(
        self, suspects: Sequence[_Suspect], moments: Sequence[datetime]
    ) -> list[PastValue | None]:
        """What history has of each suspect at a moment."""
        names = sorted({suspect.feature.name for suspect in suspects})
        points = [Point(s.entity_id, at) for s, at in zip(suspects, moments, strict=True)]
        rows = await self._offline.as_of(names, points)
        return [
            row[names.index(suspect.feature.name)]
            for suspect, row in zip(suspects, rows, strict=True)
        ]


def _kept_up(feature: FeatureDef, cell: Cell | None, past: PastValue | None, now: int) -> bool:
    """Says whether an online value is as new as what history had before it was read."""
    if past is None or _is_over(feature, past, now):
        return True
    if cell is None:
        return False
    moments = (to_micros(past.as_of), to_micros(past.written_at))
    return (cell.as_of, cell.written_at) >= moments or _same(feature, cell, past)


def _has(feature: FeatureDef, cell: Cell | None, past: PastValue | None) -> bool:
    """Says whether what history has of an online value's moment is that value, or a later one."""
    if cell is None:
        return True
    if past is None or to_micros(past.as_of) != cell.as_of:
        return False
    return _same(feature, cell, past) or to_micros(past.written_at) > cell.written_at


def _same(feature: FeatureDef, cell: Cell, past: PastValue) -> bool:
    """Says whether both sides have one value of one moment."""
    if to_micros(past.as_of) != cell.as_of:
        return False
    if past.value == bytes(cell.value):
        return True
    # History may keep a value in a typed column, and then its text is written anew.
    try:
        return bool(feature.codec.decode(past.value) == feature.codec.decode(cell.value))
    except FeatureValueError:
        # Neither is of the type that the feature has by now.
        return bool(msgspec.json.decode(past.value) == msgspec.json.decode(cell.value))


def _cell(feature: FeatureDef, past: PastValue) -> Cell:
    written_at = to_micros(past.written_at)
    return Cell(
        msgspec.Raw(past.value), to_micros(past.as_of), written_at, _end_of(feature, written_at)
    )


def _is_over(feature: FeatureDef, past: PastValue, now: int) -> bool:
    end = _end_of(feature, to_micros(past.written_at))
    return end is not None and end <= now


def _end_of(feature: FeatureDef, written_at: int) -> int | None:
    return None if feature.ttl is None else written_at + feature.ttl // MICROSECOND


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _PORTION):
        yield items[start : start + _PORTION]
