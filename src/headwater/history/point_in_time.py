"""Point-in-time reads: the values that features had at the times of a frame's rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec
from msgspec.structs import replace

from headwater.core.clock import from_micros, to_micros
from headwater.core.duckdb_session import Session, headline, parquet, session
from headwater.core.interruptible import in_thread
from headwater.core.sql_literals import text
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import FeatureSince, PastNames
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest
from headwater.features.call_scope import MOST_SOURCES, current_scope, track_sources
from headwater.features.reader import Reader
from headwater.history.columns import (
    ColumnPlan,
    ColumnReading,
    ResultColumn,
    column_type,
    from_json,
    plan_columns,
    result_columns,
)
from headwater.history.frames.entity_frame import EntityFrame, FrameResult, Spine
from headwater.history.past_reads import PastQueries, PastReads
from headwater.history.points import write_points
from headwater.history.recomputing import Recomputation
from headwater.history.window_frames import WindowFrames
from headwater.model.problems import OnStep
from headwater.ports import FrameReader, Runner, misfit_error

_TEXTS_AT_ONCE = 10_000
_EXAMPLE = """
SELECT count(*), min(v{place}), arg_min(entity_id, v{place})
FROM ({answer}) JOIN ({points}) USING ("row")
WHERE v{place} IN (SELECT value FROM misfits)
"""


class HistoryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The features to read for the rows of a frame, and how."""

    features: Sequence[FeatureDef]
    at: str = "timestamp"
    known: bool = False
    with_as_of: bool = False
    progress: OnStep | None = None
    metadata: Mapping[str, str] = {}
    """What a file of the result says about it."""


async def _never_pruned() -> None:
    return None


class PastSources(msgspec.Struct, frozen=True):
    """Where past values come from.

    ``history`` has the values that were stored; ``runner`` runs the tasks that fold windows.
    ``reader`` computes other values from these as it does for serving; ``queries`` runs the queries
    of SQL features, whose rows may be of the past. Only some features need these two. ``earliest``
    returns the moment up to which history was pruned. ``names`` says which series and default a
    feature had at each moment. ``folder`` is where files of the read are, if not in the temporary
    folder of the system.
    """

    history: FrameReader
    runner: Runner
    reader: Reader | None = None
    queries: PastQueries | None = None
    earliest: Callable[[], Awaitable[datetime | None]] = _never_pruned
    names: PastNames | None = None
    folder: str | None = None


def needs_store(features: Sequence[FeatureDef], *, known: bool) -> bool:
    """Return whether features are computed, or have a query whose rows count."""
    plans = plan_columns(features, known=known)
    has_queries = not known and any(feature.sql is not None for feature in features)
    return has_queries or any(plan.computed for plan in plans)


async def read_history(frame: EntityFrame, request: HistoryRequest, past: PastSources) -> Any:
    """Return the frame with a column for each feature, of the same kind as the caller's."""
    plans = plan_columns(request.features, known=request.known)
    order = [feature.name for feature in request.features]
    columns = result_columns(plans, order, with_as_of=request.with_as_of)
    spine = Spine([plan.entity for plan in plans], request.at, await past.earliest())
    with TemporaryDirectory(prefix="headwater-", dir=past.folder) as name, ExitStack() as undo:
        undo.callback(frame.discard)
        folder = Path(name)
        points = [folder / f"points{number}.parquet" for number in range(len(plans))]
        rows = await in_thread(_prepare, frame, spine, columns, points)
        if request.progress is not None:
            request.progress(0, rows)
        served = ServedSpans()
        if request.known and past.names is not None:
            served = await in_thread(served_spans, request.features, past.names, points[0])
            plans = plan_columns(served.features, known=True)
            columns = result_columns(plans, order, with_as_of=request.with_as_of)
        await _track_rows(plans, points)
        total = sum(len(plan.readings) + bool(plan.computed) for plan in plans)
        answering = _Answering(past, request, served, spine.earliest, folder, rows, total)
        for plan, file in zip(plans, points, strict=True):
            await answering.answer(plan, file)
        if (later := await past.earliest()) != spine.earliest:
            # Values may have been pruned before they were read.
            pruned = msgspec.structs.replace(spine, earliest=later)
            await in_thread(_prepare, frame, pruned, columns, points)
        result = FrameResult(answering.answers, columns, request.metadata)
        attached = await in_thread(_attach, frame, result, folder)
        undo.pop_all()
        return attached


async def _track_rows(plans: Sequence[ColumnPlan], points: Sequence[Path]) -> None:
    """Track the entities of a frame, if the reads of a function are tracked."""
    if current_scope().reads is None:
        return
    for plan, file in zip(plans, points, strict=True):
        ids = await in_thread(_ids, file)
        names = [feature.name for some in plan.readings for feature in some.features]
        names += [feature.name for feature in plan.computed]
        track_sources(
            ("feature", plan.entity.name, name, entity_id) for name in names for entity_id in ids
        )


def _ids(points: Path) -> list[str]:
    """Return the ids of points, as many as a provenance may list and one more."""
    sql = f"SELECT DISTINCT entity_id FROM ({parquet([points])}) LIMIT {MOST_SOURCES + 1}"
    with session(points.parent) as duck:
        return [entity_id for (entity_id,) in duck.run(sql).fetchall()]


class _Answering:
    """Answers plans one after the other, each answer in a file."""

    def __init__(
        self,
        past: PastSources,
        request: HistoryRequest,
        served: ServedSpans,
        earliest: datetime | None,
        folder: Path,
        rows: int,
        total: int,
    ) -> None:
        self._reader = past.reader
        self._served = served
        windows = WindowFrames(past.history, past.runner, earliest)
        self._reads = PastReads(past.history, windows, past.queries, folder)
        self._request = request
        self._folder = folder
        self._rows = rows
        self._total = total
        self.answers: list[Path] = []

    async def answer(self, plan: ColumnPlan, points: Path) -> None:
        """Answer the readings of a plan and its computed features."""
        for reading in plan.readings:
            report, answer = self._reporter(), self._new_answer()
            versioned = self._served.versioned(reading)
            if versioned is None:
                await self._reads.read(points, reading, answer, report)
            else:
                # Each version that was served is read, and chosen by the moment of the row.
                every = answer.with_suffix(".every.parquet")
                await self._reads.read(points, versioned.reading, every, report)
                await in_thread(versioned.write, points, every, answer)
            await in_thread(check_values, reading, points, answer)
        if plan.computed:
            assert self._reader is not None, "computed features need an open store"
            computing = Recomputation(
                self._reader, self._reads, self._folder, known=self._request.known
            )
            report = self._reporter()
            await computing.answer(plan.computed, points, self._new_answer(), report)

    def _new_answer(self) -> Path:
        self.answers.append(self._folder / f"answer{len(self.answers)}.parquet")
        return self.answers[-1]

    def _reporter(self) -> Callable[[int], None] | None:
        """Return a function that reports the progress of the next answer as a part of all."""
        progress, rows, total = self._request.progress, self._rows, self._total
        if progress is None:
            return None
        number = len(self.answers)
        return lambda done: progress((number * rows + done) // total, rows)


def _prepare(
    frame: EntityFrame, spine: Spine, columns: Sequence[ResultColumn], points: Sequence[Path]
) -> int:
    """Check a frame and write its points; return the number of its rows."""
    check_columns(frame, spine, [column.name for column in columns])
    with session(points[0].parent) as duck:
        try:
            frame.load(duck, spine)
            return write_points(duck, spine, frame.remedies, points)
        except duckdb.Error as error:
            raise InvalidInputError(f"the frame cannot be read: {headline(error)}") from error


def _attach(frame: EntityFrame, result: FrameResult, folder: Path) -> Any:
    with session(folder) as duck:
        return frame.attach(duck, result)


def check_columns(frame: EntityFrame, spine: Spine, added: Sequence[str]) -> None:
    """Raise InvalidInputError if a frame lacks a column, or has one that is to be added."""
    texts = [name for name in frame.columns() if isinstance(name, str)]
    if not texts and not frame.has_columns:
        return
    for entity in spine.entities:
        remedy = frame.remedies.absent or "rename the column"
        _check_column(entity.id_field, texts, f"the ids of {entity.name}", remedy)
    _check_column(spine.at, texts, "the times", "pass the name of the column as at=")
    # Names that differ in case alone are the same in SQL.
    by_name = {name.casefold(): name for name in texts}
    for name in added:
        if name.casefold() in by_name:
            present = by_name[name.casefold()]
            raise InvalidInputError(
                f"the frame already has a column {present!r}; rename or drop it"
            )


def _check_column(name: str, given: Sequence[str], content: str, remedy: str) -> None:
    if name not in given:
        raise InvalidInputError(
            f"the frame has no column {name!r} with {content}; {nearest(name, given, remedy)}"
        )
    if given.count(name) > 1:
        raise InvalidInputError(f"the frame has several columns {name!r}; rename all but one")


class VersionedReading(msgspec.Struct, frozen=True):
    """A reading of every version that was served, and what its columns are chosen from."""

    reading: ColumnReading
    columns: Sequence[Sequence[tuple[FeatureSince, int]]]
    """For each column of the answer, the spans of its feature and their places in the reading."""

    def write(self, points: Path, every: Path, answer: Path) -> None:
        """Write the answer: for each row the value of the version that was served at its moment.

        The default of that moment stands where there was no value.
        """
        selected = ["row"]
        for place, spans in enumerate(self.columns):
            selected.append(f"{_chosen(spans, _value)} AS v{place}")
            selected.append(f"{_chosen(spans, lambda _, number: f'a{number}')} AS a{place}")
        with session(answer.parent) as duck:
            duck.write(
                f"SELECT {', '.join(selected)} FROM ({parquet([every])})"
                f' JOIN (SELECT row, "at" FROM ({parquet([points])})) USING (row) ORDER BY row',
                answer,
            )


class ServedSpans(msgspec.Struct, frozen=True):
    """The requested features as they were served, and those that were not always the same."""

    features: Sequence[FeatureDef] = ()
    changed: Mapping[str, Sequence[FeatureSince]] = {}

    def versioned(self, reading: ColumnReading) -> VersionedReading | None:
        """Return how a reading is answered if one of its features was not always the same."""
        if not any(feature.name in self.changed for feature in reading.features):
            return None
        every: dict[tuple[str, str], FeatureDef] = {}
        spans = [
            self.changed.get(feature.name, [FeatureSince(_EVER, feature)])
            for feature in reading.features
        ]
        for span in (span for of_feature in spans for span in of_feature):
            every.setdefault(_source(span.feature), span.feature)
        places = {source: place for place, source in enumerate(every)}
        return VersionedReading(
            replace(reading, features=list(every.values())),
            [
                [(span, places[_source(span.feature)]) for span in of_feature]
                for of_feature in spans
            ],
        )


def _source(feature: FeatureDef) -> tuple[str, str]:
    """Return what a feature is read from; those of a family share its series."""
    return feature.series, feature.name if feature.window is not None else ""


_EVER = from_micros(0)


def served_spans(features: Sequence[FeatureDef], names: PastNames, points: Path) -> ServedSpans:
    """Return features as they were served at the moments of some points."""
    with session(points.parent) as duck:
        row = duck.run(f'SELECT min("at"), max("at") FROM ({parquet([points])})').fetchone()
    if row is None or row[0] is None:
        return ServedSpans(features)
    start, end = from_micros(row[0]), from_micros(row[1])
    spans = {feature.name: names.spans(feature, start, end) for feature in features}
    changed = {name: some for name, some in spans.items() if len(some) > 1}
    # The default of a row's moment is in the answer; none of the present stands in for it.
    return ServedSpans(
        [
            replace(feature, default=None)
            if feature.name in changed
            else spans[feature.name][0].feature
            for feature in features
        ],
        changed,
    )


def _chosen(
    spans: Sequence[tuple[FeatureSince, int]], expression: Callable[[FeatureDef, int], str]
) -> str:
    """Return the SQL that chooses by the moment of a row."""
    sql = expression(spans[0][0].feature, spans[0][1])
    for span, place in spans[1:]:
        later = expression(span.feature, place)
        sql = f'CASE WHEN "at" >= {to_micros(span.since)} THEN {later} ELSE {sql} END'
    return sql


def _value(feature: FeatureDef, place: int) -> str:
    default = feature.default_text
    if default is None:
        return f"v{place}"
    kind = feature.codec.kind
    fallback = (
        text(default) if kind == "json" else from_json(text(default), column_type(feature.codec))
    )
    return f"CASE WHEN a{place} IS NULL THEN {fallback} ELSE v{place} END"


def check_values(reading: ColumnReading, points: Path, answer: Path) -> None:
    """Raise FeatureValueError if an answer has JSON text that does not fit its feature's type.

    Each distinct text is decoded once.
    """
    places = [n for n, column in enumerate(reading.columns) if column.kind == "json"]
    if not places:
        return
    with session(answer.parent) as duck:
        for place in places:
            feature = reading.features[place]
            misfits = _misfits(
                duck, feature, f"SELECT DISTINCT v{place} AS v FROM ({parquet([answer])})"
            )
            if misfits:
                duck.load_rows(
                    "misfits", [{"value": misfit} for misfit in misfits], {"value": "VARCHAR"}
                )
                sql = _EXAMPLE.format(
                    place=place, answer=parquet([answer]), points=parquet([points])
                )
                row = duck.run(sql).fetchone()
                assert row is not None, "an aggregate returns a row"
                raise misfit_error(
                    reading.columns[place],
                    count=row[0],
                    example=row[1],
                    entity_id=row[2],
                    expected=feature.codec.expected,
                )


def _misfits(duck: Session, feature: FeatureDef, texts: str) -> list[str]:
    in_table = from_json("v", column_type(feature.codec))
    cursor = duck.run(f"SELECT v, TRY({in_table}) IS NOT NULL FROM ({texts}) WHERE v IS NOT NULL")
    misfits = []
    while page := cursor.fetchmany(_TEXTS_AT_ONCE):
        misfits += [
            text for text, has_type in page if not (has_type and feature.codec.fits(text.encode()))
        ]
    return misfits
