"""Comparing the values that contexts have recorded with history: training equals serving.

A value is equal if history gives it as known when the assembly began or ended. A value becomes
readable a moment after its ``written_at``, and may change during the assembly: where it has just
been replaced, the moment at which the recorded value was written counts as well. After a switch or
with a new default, a process may have served the one before for a moment longer. An input of a
stored value was read when that was computed: it is compared with what was known then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from headwater.backends.runners.inline import InlineRunner
from headwater.contexts.record_builder import recorded_value
from headwater.contexts.recorded.replay import first_needed
from headwater.contexts.recorded.verification import load_record
from headwater.core.canonical_json import to_tagged
from headwater.core.clock import to_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.hidden_inputs import hidden_of
from headwater.declarations.meanings import declared_as, named_at
from headwater.errors import (
    DamagedRecordError,
    FeatureValueError,
    HeadwaterError,
    InvalidInputError,
)
from headwater.features.cells import history_cell
from headwater.features.reader import Reader
from headwater.features.services import Services
from headwater.features.window_reads import family_reads
from headwater.features.window_states import WindowStates
from headwater.history.backfill.steps import KEPT_FRESH
from headwater.history.frames.tables import open_frame
from headwater.history.point_in_time import HistoryRequest, PastSources, read_history
from headwater.model.admin import ServedDifference, ServedReport
from headwater.model.catalog import CatalogState, DroppedFeature
from headwater.ports import PastValue, Point, RecordQuery, StoredRecord
from headwater.records.core import Commitment, Core, FeatureInput, FeatureRead

_COMMIT_DELAY = timedelta(seconds=30)
"""The longest time between the computation of a value and the commit that makes it readable."""

WITHHELD = "withheld: recorded without content, or redacted"
UNDECLARED = "of features that are not declared any more"
DROPPED = "of features or versions that were dropped"
CHANGING = "computed while another version or default began to be served"
NO_PAST = "of on-demand features without history"
PRUNED = "of a moment before history was pruned"
DAMAGED = "of damaged records"
UNREADABLE = "of a type that has changed since"


class _Read(NamedTuple):
    """A value that was read during an assembly or a computation before it, for that span."""

    read: FeatureInput
    inputs: tuple[FeatureInput, ...]
    """All that it can have been computed from."""
    began: datetime
    ended: datetime


class _ServedValue(msgspec.Struct, frozen=True):
    """A value that a context read, its feature as declared now, and the span it was read in."""

    context_id: str
    read: FeatureInput
    inputs: tuple[FeatureInput, ...]
    feature: FeatureDef
    began: datetime
    ended: datetime

    @property
    def entity_id(self) -> str:
        return str(self.read.entity_id)

    @property
    def moments(self) -> tuple[datetime, datetime, datetime]:
        """The beginning, the end, and the moment since which the value was served, if known."""
        inputs = self.read.inputs if isinstance(self.read, FeatureRead) else ()
        written = [read.written_at for read in (self.read, *inputs) if read.written_at]
        if written:
            return self.began, self.ended, max(written)
        is_computed = self.is_absent or self.read.rule == "inputs"
        return self.began, self.ended, self.since if is_computed else self.ended

    @property
    def since(self) -> datetime:
        """The moment since which a value that was not served yet may have been computed."""
        return self.began - _COMMIT_DELAY

    @property
    def before(self) -> datetime:
        """The moment since which a process may have served what was served before a change."""
        return self.began - KEPT_FRESH

    @property
    def is_absent(self) -> bool:
        """Whether history had nothing, so that the default or nothing was served."""
        return self.read.source in ("default", "missing")


class _Absent(NamedTuple):
    """That history had no value, and the default that was served in its place."""

    default: Any


class ServedAudit:
    """Compares the values of a sample of records with the values known at their moments."""

    def __init__(self, services: Services, reader: Reader) -> None:
        self._registry = services.registry
        self._records = services.backends.records
        self._backends = services.backends
        self._offline = services.backends.offline
        self._catalog = services.catalog.state
        self._reader = reader
        self._not_compared: Counter[str] = Counter()
        self._differences: list[ServedDifference] = []
        self._equal = 0

    async def compare(self, records: int, limit: int, catalog: CatalogState) -> ServedReport:
        """Compare the values of some records; list at most ``limit`` differences."""
        self._catalog = catalog
        by_feature: dict[str, list[_ServedValue]] = {}
        sampled = 0
        async for stored in self._sample(records):
            sampled += 1
            for value in self._values(stored):
                by_feature.setdefault(value.feature.name, []).append(value)
        for values in by_feature.values():
            feature = values[0].feature
            if feature.derived or feature.template is not None:
                await self._compare_computed(feature, values)
            elif feature.window is not None:
                for value in values:
                    await self._compare_window(feature, feature.window.family, value)
            else:
                await self._compare_stored(feature, values)
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
            summaries = await self._records.records(RecordQuery(end=end, limit=size))
            if not summaries:
                return
            for summary in summaries[: count - len(seen)]:
                stored = await self._records.get(summary.context_id)
                if stored is not None and summary.context_id not in seen:
                    seen.add(summary.context_id)
                    yield stored
            newest = newest or summaries[0].created_at
            # Twice as old as the oldest one so far.
            age = max(2 * age, newest - summaries[-1].created_at)
            end = min(newest - age, summaries[-1].created_at)
            size = max(1, count // 20)

    def _values(self, stored: StoredRecord) -> Iterator[_ServedValue]:
        """Yield the values of a record that can be compared; count the others."""
        try:
            _, core = load_record(stored)
        except DamagedRecordError:
            self._not_compared[DAMAGED] += 1
            return
        horizon = self._catalog.pruned.history
        for read, inputs, began, ended in _reads(core):
            is_withheld = Commitment in (type(read.entity_id), type(read.value))
            feature = WITHHELD if is_withheld else self._named(read.feature, began)
            if isinstance(feature, str):
                self._not_compared[feature] += 1
            elif not (
                feature.derived
                or feature.template is not None
                or feature.has_history
                or (feature.window is not None and read.window is not msgspec.UNSET)
            ):
                self._not_compared[NO_PAST] += 1
            elif horizon is not None and (first_needed(read) or began) < horizon:
                self._not_compared[PRUNED] += 1
            else:
                yield _ServedValue(stored.context_id, read, inputs, feature, began, ended)

    def _named(self, name: str, moment: datetime) -> FeatureDef | str:
        """Return the feature that a name meant at a moment, or why there is none now."""
        owner, declared = named_at(self._catalog, name, moment), self._registry.features
        if isinstance(owner, DroppedFeature):
            return DROPPED
        now = name if owner is None else declared_as(self._catalog, owner, declared)
        return UNDECLARED if now is None or now not in declared else declared[now]

    async def _compare_computed(self, feature: FeatureDef, values: Sequence[_ServedValue]) -> None:
        """Compare values with computed ones of the beginning and the end."""
        rows = [
            {feature.entity.id_field: value.entity_id, "at": moment}
            for value in values
            for moment in value.moments
        ]
        request = HistoryRequest(features=[feature], at="at", known=True)
        sources = PastSources(self._offline, InlineRunner(), self._reader)
        try:
            answers = await read_history(open_frame(rows, None), request, sources)
        except HeadwaterError as error:
            self._not_compared[f"of {feature.name!r}, which cannot be computed: {error}"] += len(
                values
            )
            return
        results = [row[feature.name] for row in answers]
        for place, value in enumerate(values):
            some = results[3 * place : 3 * place + 3]
            reason = None if _is_among(value, some) else self._change(value)
            if reason is None:
                self._judge(value, some)
            else:
                self._not_compared[reason] += 1

    def _change(self, value: _ServedValue) -> str | None:
        """Return what has changed about the inputs of a value, so that it is another one now."""
        inputs = [self._named(inner.feature, value.began) for inner in value.inputs]
        if DROPPED in inputs:
            return DROPPED
        try:
            served = [
                self._served(inner, value) for inner in inputs if isinstance(inner, FeatureDef)
            ]
        except InvalidInputError:
            return DROPPED
        if any(map(_is_converted, served)):
            return UNREADABLE
        era = self._registry.era
        return None if era(value.before) == era(value.ended) else CHANGING

    def _served(self, feature: FeatureDef, value: _ServedValue) -> list[FeatureDef]:
        """Return a feature in the versions that may have been served when a value was read."""
        spans = self._registry.past_names.spans(feature, value.before, value.ended)
        return [span.feature for span in spans]

    async def _compare_window(self, feature: FeatureDef, family: str, value: _ServedValue) -> None:
        """Compare the value of a window with that of the contributions that it was folded from."""
        try:
            served = self._served(self._registry.features[family], value)
        except InvalidInputError:
            self._not_compared[DROPPED] += 1
            return
        asked = {feature.name: value.read.window or None}
        results: list[Any] = []
        for version in served:
            (read,) = family_reads([feature], {family: version})
            for (at, known, _), evaluated in read.served(asked, value.began).items():
                moment, cell = to_micros(at), None
                if known is not None:
                    states = WindowStates(self._backends)
                    ids, until = [value.entity_id], to_micros(known)
                    cell = (await states.made_again(evaluated.family, ids, moment, until)).get(
                        value.entity_id
                    )
                row = evaluated.row(cell, moment, tracked=False) or {}
                results.append(row[feature.name].value)
        self._judge(value, results)

    async def _compare_stored(self, feature: FeatureDef, values: Sequence[_ServedValue]) -> None:
        """Compare values with history, in the versions that were served then."""
        by_series: dict[tuple[str, ...], list[tuple[_ServedValue, list[FeatureDef]]]] = {}
        for value in values:
            try:
                served = self._served(feature, value)
            except InvalidInputError:
                self._not_compared[DROPPED] += 1
                continue
            series = tuple(dict.fromkeys(version.series for version in served))
            by_series.setdefault(series, []).append((value, served))
        for series, some in by_series.items():
            points = [Point(value.entity_id, at) for value, _ in some for at in value.moments]
            past_values = await self._offline.as_of(series, points, known=True)
            for place, (value, served) in enumerate(some):
                rows = past_values[3 * place : 3 * place + 3]
                past = {name: [row[n] for row in rows] for n, name in enumerate(series)}
                await self._compare_one(value, served, past)

    async def _compare_one(
        self,
        value: _ServedValue,
        served: Sequence[FeatureDef],
        past: Mapping[str, Sequence[PastValue | None]],
    ) -> None:
        """Compare a value with those of the versions that may have been served."""
        results: list[Any] = []
        if _is_converted(served):
            self._not_compared[UNREADABLE] += 1  # the record has a value of an earlier type
            return
        try:
            for feature in served:
                results += await self._known(value, feature, past[feature.series])
        except FeatureValueError:
            self._not_compared[UNREADABLE] += 1
            return
        self._judge(value, results)

    async def _known(
        self, value: _ServedValue, feature: FeatureDef, past: Sequence[PastValue | None]
    ) -> list[Any]:
        """Return what history knows of the moments of a value in one version."""
        results = [
            _live(feature, cell, moment) for cell, moment in zip(past, value.moments, strict=True)
        ]
        # A value that was replaced long before was stale, although it was written then.
        if all(cell is None or cell.written_at <= value.since for cell in past[:2]):
            del results[2:]
        if feature.log:
            end = value.ended + timedelta.resolution
            (rows,) = await self._offline.rows(
                feature.series, [value.entity_id], start=value.began, end=end, limit=100
            )
            results += [feature.codec.decode(row.value) for row in rows]
        return results

    def _judge(self, value: _ServedValue, results: Sequence[Any]) -> None:
        """Count a value as equal to one of the results, or as different from all of them."""
        if _is_among(value, results):
            self._equal += 1
            return
        read, last = value.read, results[-1]
        hidden_inputs = [f"{hidden.location}: it {hidden}" for hidden in hidden_of(value.feature)]
        self._differences.append(
            ServedDifference(
                *(value.context_id, read.feature, value.entity_id, value.began, read.value),
                history=last.default if isinstance(last, _Absent) else last,
                hint="; ".join(hidden_inputs),
            )
        )


def _reads(core: Core) -> Iterator[_Read]:
    """Yield every value that a context read, also as an input of others, once for each span."""
    seen: set[tuple[object, ...]] = set()
    began, ended = core.timing.started_at, core.created_at
    for outer in core.features:
        inner = [
            _Read(
                input_read,
                outer.inputs if input_read.rule == "inputs" else (),
                *_span(input_read, outer, core),
            )
            for input_read in outer.inputs
        ]
        for served in (_Read(outer, outer.inputs, began, ended), *inner):
            read = served.read
            value = (read.feature, str(read.entity_id), read.written_at, read.as_of, read.source)
            key = (*value, served.began, served.ended)
            if key not in seen:
                seen.add(key)
                yield served


def _span(read: FeatureInput, outer: FeatureRead, core: Core) -> tuple[datetime, datetime]:
    """Return the span in which an input, direct or not, of a value was read.

    That is when the value was computed, or a stored value between the two.
    """
    began, ended = core.timing.started_at, core.created_at
    if outer.written_at is not None and outer.written_at < began:
        began = ended = outer.written_at
    between = [
        inner.written_at
        for inner in outer.inputs
        if inner is not read and inner.rule == "inputs" and inner.written_at is not None
    ]
    since = read.written_at
    return min([began, *(moment for moment in between if since is None or moment >= since)]), ended


def _is_converted(served: Sequence[FeatureDef]) -> bool:
    """Return whether values of one of the versions are converted to the declared type now."""
    return any(dict(version.lineage).get(version.series) for version in served)


def _live(feature: FeatureDef, past: PastValue | None, moment: datetime) -> Any:
    """Return the value of history unless it had expired by then."""
    if past is None or history_cell(feature, past).expired(to_micros(moment)):
        return _Absent(feature.default)
    return feature.codec.decode(past.value)


def _is_among(value: _ServedValue, results: Sequence[Any]) -> bool:
    return any(_is_equal(value, result) for result in results)


def _is_equal(value: _ServedValue, result: Any) -> bool:
    if isinstance(result, _Absent):
        return value.is_absent and _is_equal(value, result.default)
    return bool(to_tagged(recorded_value(result)) == to_tagged(value.read.value))
