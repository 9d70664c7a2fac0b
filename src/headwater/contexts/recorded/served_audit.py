"""Comparing the values that contexts have recorded with history: training equals serving.

A value is equal if history gives it as known when the assembly began or ended. A value becomes
readable a moment after its ``written_at``, and may change during the assembly: where it has just
been replaced, the moment at which the recorded value was written counts as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from headwater.contexts.record_builder import recorded_value
from headwater.contexts.recorded.verification import load_record
from headwater.core.canonical_json import to_tagged
from headwater.core.clock import to_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.hidden_inputs import hidden_of
from headwater.declarations.series import declared_entry
from headwater.errors import DamagedRecordError, FeatureValueError, HeadwaterError
from headwater.features.cells import history_cell
from headwater.features.reader import Reader
from headwater.features.served_report import ServedDifference, ServedReport
from headwater.features.services import Services
from headwater.history.frames.kinds import open_frame
from headwater.history.point_in_time import HistoryRequest, PastSources, read_history
from headwater.ports import CatalogEntry, CatalogState, PastValue, Point, RecordQuery, StoredRecord
from headwater.records.core import Commitment, Core, FeatureInput, FeatureRead

_COMMIT_DELAY = timedelta(seconds=30)
"""The longest time between the computation of a value and the commit that makes it readable."""
_MISSING = object()

WITHHELD = "withheld: recorded without content, or redacted"
UNDECLARED = "of features that are not declared any more"
NO_PAST = "of on-demand features without history"
NOT_STORED = "computed from a default, so not stored"
PRUNED = "of a moment before history was pruned"
DAMAGED = "of damaged records"
UNREADABLE = "of a type that has changed since"


class _ServedValue(msgspec.Struct, frozen=True):
    """A value that a context read, and the span of its assembly."""

    context_id: str
    read: FeatureInput
    began: datetime
    ended: datetime

    @property
    def entity_id(self) -> str:
        return str(self.read.entity_id)

    @property
    def moments(self) -> tuple[datetime, datetime, datetime]:
        """The beginning, the end, and the moment since which the value was served, if known."""
        inputs = self.read.inputs if isinstance(self.read, FeatureRead) else ()
        written = [each.written_at for each in (self.read, *inputs) if each.written_at]
        if written:
            return self.began, self.ended, max(written)
        return self.began, self.ended, self.since if self.is_absent or inputs else self.ended

    @property
    def since(self) -> datetime:
        """The moment since which a value that was not served yet may have been computed."""
        return self.began - _COMMIT_DELAY

    @property
    def is_absent(self) -> bool:
        """Whether history had nothing, so that the default or nothing was served."""
        return self.read.source in ("default", "missing")


class ServedAudit:
    """Compares the values of a sample of records with the values known at their moments."""

    def __init__(self, services: Services, reader: Reader) -> None:
        self._registry = services.registry
        self._records = services.backends.records
        self._offline = services.backends.offline
        self._reader = reader
        self._not_compared: Counter[str] = Counter()
        self._differences: list[ServedDifference] = []
        self._equal = 0

    async def compare(self, records: int, limit: int, catalog: CatalogState) -> ServedReport:
        """Compare the values of some records; list at most ``limit`` differences."""
        by_feature: dict[str, list[_ServedValue]] = {}
        sampled = 0
        async for stored in self._sample(records):
            sampled += 1
            for value in self._values(stored, catalog.pruned.history):
                by_feature.setdefault(value.read.feature, []).append(value)
        for name, values in by_feature.items():
            feature = self._registry.features[name]
            if feature.derived or feature.template is not None:
                await self._compare_computed(feature, values)
            else:
                await self._compare_stored(feature, values, catalog)
        return ServedReport(
            records=sampled,
            values=self._equal + len(self._differences),
            equal=self._equal,
            different=len(self._differences),
            differences=self._differences[:limit],
            not_compared=dict(self._not_compared),
        )

    async def _sample(self, count: int) -> AsyncIterator[StoredRecord]:
        """Yield records: half of them the newest, the others older and older ones."""
        seen: set[str] = set()
        end: datetime | None = None
        newest: datetime | None = None
        size = (count + 1) // 2
        age = timedelta(0)
        while len(seen) < count:
            found = await self._records.records(RecordQuery(end=end, limit=size))
            if not found:
                return
            for summary in found[: count - len(seen)]:
                stored = await self._records.get(summary.context_id)
                if stored is not None and summary.context_id not in seen:
                    seen.add(summary.context_id)
                    yield stored
            newest = newest or found[0].created_at
            # Twice as old as the oldest one so far.
            age = max(2 * age, newest - found[-1].created_at)
            end = min(newest - age, found[-1].created_at)
            size = max(1, count // 20)

    def _values(self, stored: StoredRecord, horizon: datetime | None) -> Iterator[_ServedValue]:
        """Yield the values of a record that can be compared; count the others."""
        try:
            _, core = load_record(stored)
        except DamagedRecordError:
            self._not_compared[DAMAGED] += 1
            return
        began, ended = core.timing.started_at, core.created_at
        for read in _reads(core):
            reason = self._obstacle(read)
            if reason is None and horizon is not None and began < horizon:
                reason = PRUNED
            if reason is None:
                yield _ServedValue(stored.context_id, read, began, ended)
            else:
                self._not_compared[reason] += 1

    def _obstacle(self, read: FeatureInput) -> str | None:
        """Return why a value cannot be compared, or None if it can be."""
        if isinstance(read.entity_id, Commitment) or isinstance(read.value, Commitment):
            return WITHHELD
        feature = self._registry.features.get(read.feature)
        if feature is None:
            return UNDECLARED
        if feature.derived or feature.template is not None:
            return None
        if not feature.has_history:
            return NO_PAST
        is_stored = feature.log or read.source != "computed" or read.as_of is not None
        return None if is_stored else NOT_STORED

    async def _compare_computed(self, feature: FeatureDef, values: Sequence[_ServedValue]) -> None:
        """Compare values with those that are computed for the beginning and the end."""
        rows = [
            {feature.entity.id_field: value.entity_id, "at": moment}
            for value in values
            for moment in value.moments
        ]
        request = HistoryRequest(features=[feature], at="at", known=True)
        sources = PastSources(self._offline, self._reader)
        try:
            found = await read_history(open_frame(rows, None), request, sources)
        except HeadwaterError as error:
            self._not_compared[f"of {feature.name!r}, which cannot be computed: {error}"] += len(
                values
            )
            return
        results = [row[feature.name] for row in found]
        for place, value in enumerate(values):
            self._judge(value, results[3 * place : 3 * place + 3])

    async def _compare_stored(
        self, feature: FeatureDef, values: Sequence[_ServedValue], catalog: CatalogState
    ) -> None:
        """Compare values with those that history has."""
        by_series: dict[str, list[_ServedValue]] = {}
        entry = declared_entry(catalog, feature.name, self._registry.features)
        for value in values:
            by_series.setdefault(_series_at(feature, value.began, entry), []).append(value)
        for series, some in by_series.items():
            points = [Point(value.entity_id, moment) for value in some for moment in value.moments]
            found = await self._offline.as_of([series], points, known=True)
            for place, value in enumerate(some):
                past = [row[0] for row in found[3 * place : 3 * place + 3]]
                await self._compare_one(feature, series, value, past)

    async def _compare_one(
        self,
        feature: FeatureDef,
        series: str,
        value: _ServedValue,
        past: Sequence[PastValue | None],
    ) -> None:
        try:
            results = [
                _live(feature, each, moment)
                for each, moment in zip(past, value.moments, strict=True)
            ]
            # A value that was replaced long before was stale, although it was written then.
            if all(each is None or each.written_at <= value.since for each in past[:2]):
                del results[2:]
            if feature.log:
                end = value.ended + timedelta.resolution
                rows = await self._offline.rows(
                    series, value.entity_id, start=value.began, end=end, limit=100
                )
                results += [feature.codec.decode(row.value) for row in rows]
        except FeatureValueError:
            self._not_compared[UNREADABLE] += 1
            return
        self._judge(value, results)

    def _judge(self, value: _ServedValue, results: Sequence[Any]) -> None:
        """Count a value as equal to one of the results, or as different from all of them."""
        read = value.read
        if any(_is_equal(value, result) for result in results):
            self._equal += 1
            return
        shown = None if results[-1] is _MISSING else results[-1]
        self._differences.append(
            ServedDifference(
                value.context_id,
                read.feature,
                value.entity_id,
                value.began,
                read.value,
                shown,
                self._hint(read.feature),
            )
        )

    def _hint(self, name: str) -> str:
        """Return which source of time or chance the code of a feature uses."""
        hidden = hidden_of(self._registry.features[name])
        return "; ".join(f"{each.location}: it {each}" for each in hidden)


def _reads(core: Core) -> Iterator[FeatureInput]:
    """Yield every value that a context read, also as an input of others, once."""
    seen: set[tuple[object, ...]] = set()
    for read in core.features:
        for each in (read, *read.inputs):
            key = (each.feature, str(each.entity_id), each.written_at, each.as_of, each.source)
            if key not in seen:
                seen.add(key)
                yield each


def _series_at(feature: FeatureDef, moment: datetime, entry: CatalogEntry | None) -> str:
    """Return the series that was served at a moment."""
    versions = [] if entry is None else entry.versions
    served = [each for each in versions if each.activated_at and each.activated_at <= moment]
    if not served:
        return versions[0].series if versions else feature.series
    return max(served, key=lambda each: each.activated_at or moment).series


def _live(feature: FeatureDef, past: PastValue | None, moment: datetime) -> Any:
    """Return the value of history unless it had expired by then."""
    if past is None or history_cell(feature, past).expired(to_micros(moment)):
        return _MISSING
    return feature.codec.decode(past.value)


def _is_equal(value: _ServedValue, result: Any) -> bool:
    if result is _MISSING:
        return value.is_absent
    return bool(to_tagged(recorded_value(result)) == to_tagged(value.read.value))
