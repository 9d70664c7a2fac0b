"""Reconciling online values with history: rebuilding them from it, and comparing both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.core.batching import batched
from headwater.core.clock import Clock, from_micros, to_micros
from headwater.core.partitioning import partition_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.features.cells import history_cell, is_same_value
from headwater.features.window_audit import WindowAudit
from headwater.features.window_states import WindowStates
from headwater.model.admin import AuditReport, Difference, RebuildReport, StoredValue
from headwater.model.problems import OnStep
from headwater.model.values import Cell, Cells
from headwater.ports import Backends, DeadLetterQuery, PastValue, Point

_PAGE = 5_000
_BATCH = 500
_MAX_SUSPECTS = 500
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
# History may receive a committed value with a delay.
_PAUSES_SECONDS = (0.0, 0.2, 1.0, 4.0)

_COUNT = "SELECT entity, count(DISTINCT entity_id) FROM feature_history GROUP BY entity"

LastValues = Mapping[str, PastValue]
"""The last value in history of every feature of one entity."""

Features = Mapping[str, FeatureDef]
"""The features of one entity whose values are stored, by series."""


class _Suspect(NamedTuple):
    """A value that differed when both sides were last read."""

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
            None if cell is None else StoredValue(cell.value, from_micros(cell.as_of)),
            None if past is None else StoredValue(msgspec.Raw(past.value), past.as_of),
        )


class _Counter:
    """Counts entities and values, and reports the progress."""

    def __init__(self, progress: OnStep | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self.entity_ids = 0
        self.values = 0

    def step(self, entity_ids: int, values: int) -> None:
        self.entity_ids += entity_ids
        self.values += values
        if self._progress is not None:
            self._progress(self.entity_ids, max(self.entity_ids, self._total))


class Reconciler:
    """Rebuilds and compares the values of all declared features that are stored."""

    def __init__(
        self, registry: Registry, backends: Backends, clock: Clock, partitions: int
    ) -> None:
        self._registry = registry
        self._partitions = partitions
        self._online = backends.online
        self._offline = backends.offline
        self._erasures = backends.erasures
        self._dead_letters = backends.dead_letters
        self._states = WindowStates(backends)
        self._windows = WindowAudit(backends, clock)
        self._clock = clock

    async def rebuild(
        self, progress: OnStep | None = None, lacking: Collection[int] | None = None
    ) -> RebuildReport:
        """Write the last values of history online, except where the online value is newer.

        Expired values are left out: no read would return them. Values and dead letters of erased
        entities, which an older copy of the online store may have, are removed. Windows are made
        again from their contributions, unless only the partitions ``lacking`` lack some.
        """
        stored = self._stored_features()
        for entity in stored:
            await self._remove_erased(entity)
        await self._discard_erased()
        counter = _Counter(progress, await self._count(stored) if progress else 0)
        for entity, features in stored.items():
            after = ""
            while page := await self._offline.latest(entity, after=after, limit=_PAGE):
                for batch in batched(page, _BATCH):
                    values = self._unexpired(features, batch)
                    await self._online.restore(entity, values)
                    states = await self._fold_again(features, batch, lacking)
                    counter.step(len(batch), sum(map(len, values.values())) + states)
                after = page[-1][0]
        return RebuildReport(counter.entity_ids, counter.values)

    async def _fold_again(
        self,
        features: Features,
        batch: Sequence[tuple[str, LastValues]],
        lacking: Collection[int] | None,
    ) -> int:
        """Make the states of families again that history has contributions of."""
        count = 0
        if lacking is not None:
            batch = [one for one in batch if partition_of(one[0], self._partitions) in lacking]
        for series, family in features.items():
            if family.windows is not None:
                ids = [entity_id for entity_id, past in batch if series in past]
                count += await self._states.rebuild(family, ids, self._clock)
        return count

    async def _remove_erased(self, entity: str) -> None:
        ledger, after = await self._erasures.refresh(), ""
        if not ledger.revision:
            return
        while ids := await self._online.entity_ids(entity, after=after, limit=_PAGE):
            erased = [entity_id for entity_id in ids if ledger.find(entity, entity_id)]
            for entity_id, cells in zip(
                erased, await self._online.get(entity, erased), strict=True
            ):
                if ledger.admitted_cells((entity, entity_id), cells) != cells:
                    await self._online.forget(entity, entity_id)
            after = ids[-1]

    async def _discard_erased(self) -> None:
        """Discard the dead letters of erased entities."""
        ledger = await self._erasures.refresh()
        if not ledger.revision:
            return
        query = DeadLetterQuery(limit=_PAGE)
        while letters := await self._dead_letters.letters(query):
            erased = [
                letter.id
                for letter in letters
                if ledger.voiding(letter.event, self._registry.subjects, letter.position)
            ]
            if erased:
                await self._dead_letters.discard(erased)
            query = replace(query, after=letters[-1].id)

    async def audit(self, limit: int, progress: OnStep | None = None) -> AuditReport:
        """Compare the online values with the last ones of history, up to ``limit`` differences.

        On-demand features are left out: their stored values are a cache. While workers run, both
        sides change between two reads, so a difference counts only if it is still there after
        several reads.
        """
        stored = self._stored_features()
        counter = _Counter(progress, await self._count(stored) if progress else 0)
        differing: list[Difference] = []
        async with aclosing(self._differences(stored, counter)) as differences:
            async for difference in differences:
                differing.append(difference)
                if len(differing) > limit:
                    break
        return AuditReport(
            counter.entity_ids,
            counter.values,
            differing[:limit],
            [
                feature.name
                for features in stored.values()
                for feature in features.values()
                if feature.mode == "on_demand"
            ],
            complete=len(differing) <= limit,
        )

    def _stored_features(self) -> dict[str, Features]:
        stored: dict[str, dict[str, FeatureDef]] = {}
        for feature in self._registry.features.values():
            if feature.kept:
                feature.check_stored()
                stored.setdefault(feature.entity.name, {})[feature.series] = feature
        return dict(stored)

    async def _count(self, stored: Mapping[str, Features]) -> int:
        """Return how many entities history has."""
        answer = await self._offline.query(_COUNT, {})
        return sum(count for entity, count in answer.rows if entity in stored)

    def _unexpired(
        self, features: Features, batch: Sequence[tuple[str, LastValues]]
    ) -> dict[str, Cells]:
        """Return the cells of some entities, without expired ones."""
        now = self._clock.micros()
        cells_of: dict[str, Cells] = {}
        for entity_id, past in batch:
            cells = {
                series: cell
                for series, value in past.items()
                if series in features
                and features[series].windows is None
                and not (cell := history_cell(features[series], value)).expired(now)
            }
            if cells:
                cells_of[entity_id] = cells
        return cells_of

    async def _differences(
        self, stored: Mapping[str, Features], counter: _Counter
    ) -> AsyncGenerator[Difference]:
        for entity, features in stored.items():
            compared = {
                series: feature
                for series, feature in features.items()
                if feature.mode != "on_demand" and feature.windows is None
            }
            families = [feature for feature in features.values() if feature.windows is not None]
            suspects: list[_Suspect] = []
            async for last_values in self._all_ids(entity):
                suspects += await self._compare(entity, compared, last_values, counter)
                for family in families:
                    ids = await self._windows.suspects(family, list(last_values))
                    suspects += [_Suspect(family, entity_id) for entity_id in ids]
                    counter.step(0, sum(family.series in past for past in last_values.values()))
                # Reading again has pauses, so it is done for many suspects at a time.
                if len(suspects) >= _MAX_SUSPECTS:
                    for difference in await self._confirmed(entity, suspects):
                        yield difference
                    suspects = []
            for difference in await self._confirmed(entity, suspects):
                yield difference

    async def _all_ids(self, entity: str) -> AsyncIterator[dict[str, LastValues]]:
        """Yield all ids of either side in sorted order, with their last values in history."""
        after = ""
        while True:
            past = dict(await self._offline.latest(entity, after=after, limit=_PAGE))
            online = await self._online.entity_ids(entity, after=after, limit=_PAGE)
            if not past and not online:
                return
            # After the last id of its page a side may have more ids.
            after = min(max(ids) for ids in (past, online) if ids)
            for ids in batched(sorted(i for i in {*past, *online} if i <= after), _BATCH):
                yield {entity_id: past.get(entity_id, {}) for entity_id in ids}

    async def _compare(
        self, entity: str, features: Features, pasts: Mapping[str, LastValues], counter: _Counter
    ) -> list[_Suspect]:
        """Return the values of some entities that differ at the first comparison."""
        suspects = []
        values = 0
        online = await self._online.get(entity, list(pasts))
        now = self._clock.micros()
        for (entity_id, past), cells in zip(pasts.items(), online, strict=True):
            for series in features.keys() & {*past, *cells}:
                values += 1
                feature, cell, value = features[series], cells.get(series), past.get(series)
                if not (
                    _is_current(feature, cell, value, now) and _is_in_history(feature, cell, value)
                ):
                    suspects.append(_Suspect(feature, entity_id))
        counter.step(len(pasts), values)
        return suspects

    async def _confirmed(self, entity: str, suspects: Sequence[_Suspect]) -> list[Difference]:
        states: dict[str, list[_Suspect]] = {}
        for suspect in suspects:
            if suspect.feature.windows is not None:
                states.setdefault(suspect.feature.series, []).append(suspect)
        suspects = [suspect for suspect in suspects if suspect.feature.windows is None]
        for pause in _PAUSES_SECONDS:
            if not suspects:
                break
            suspects = await self._look_again(entity, suspects, pause)
        differences = [suspect.difference for suspect in suspects]
        for some in states.values():
            ids = [suspect.entity_id for suspect in some]
            differences += await self._windows.confirmed(some[0].feature, ids, _PAUSES_SECONDS)
        return differences

    async def _look_again(
        self, entity: str, suspects: Sequence[_Suspect], pause: float
    ) -> list[_Suspect]:
        """Return the suspects that still differ.

        History is read before and after the online value: the online value must be at least as new
        as the earlier read, and the later read must have it.
        """
        ends = await self._past(suspects, [_END_OF_TIME] * len(suspects))
        online = await self._online.get(entity, [suspect.entity_id for suspect in suspects])
        cells = [
            values.get(suspect.feature.series)
            for suspect, values in zip(suspects, online, strict=True)
        ]
        await self._clock.sleep(pause)
        moments = [_END_OF_TIME if cell is None else from_micros(cell.as_of) for cell in cells]
        thens = await self._past(suspects, moments)
        now = self._clock.micros()
        again = []
        for suspect, cell, end, then in zip(suspects, cells, ends, thens, strict=True):
            feature = suspect.feature
            if not (_is_current(feature, cell, end, now) and _is_in_history(feature, cell, then)):
                again.append(_Suspect(feature, suspect.entity_id, cell, end))
        return again

    async def _past(
        self, suspects: Sequence[_Suspect], moments: Sequence[datetime]
    ) -> list[PastValue | None]:
        """Return the value of each suspect in history at a moment."""
        series = sorted({suspect.feature.series for suspect in suspects})
        points = [Point(s.entity_id, at) for s, at in zip(suspects, moments, strict=True)]
        rows = await self._offline.as_of(series, points)
        return [
            row[series.index(suspect.feature.series)]
            for suspect, row in zip(suspects, rows, strict=True)
        ]


def _is_current(feature: FeatureDef, cell: Cell | None, past: PastValue | None, now: int) -> bool:
    """Return whether an online value is at least as new as an earlier read of history."""
    if past is None or history_cell(feature, past).expired(now):
        return True
    if cell is None:
        return False
    moments = (to_micros(past.as_of), to_micros(past.written_at))
    return (cell.as_of, cell.written_at) >= moments or _is_same(feature, cell, past)


def _is_in_history(feature: FeatureDef, cell: Cell | None, past: PastValue | None) -> bool:
    """Return whether history has the online value at its moment, or one written later."""
    if cell is None:
        return True
    if past is None or to_micros(past.as_of) != cell.as_of:
        return False
    return _is_same(feature, cell, past) or to_micros(past.written_at) > cell.written_at


def _is_same(feature: FeatureDef, cell: Cell, past: PastValue) -> bool:
    """Return whether both sides have the same value of the same moment."""
    if to_micros(past.as_of) != cell.as_of:
        return False
    return is_same_value(feature, cell.value, past.value)
