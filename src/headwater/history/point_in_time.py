"""Point-in-time reads: the values that features had at the times of a frame's rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec

from headwater.core.duckdb_session import headline, parquet, session
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import PastNames
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest
from headwater.features.call_scope import MOST_SOURCES, current_scope, track_sources
from headwater.features.reader import Reader
from headwater.history.columns import (
    ColumnPlan,
    Reading,
    ResultColumn,
    plan_columns,
    result_columns,
)
from headwater.history.frames.entity_frame import EntityFrame, FrameResult, Spine
from headwater.history.json_values import check_values
from headwater.history.past_reads import PastQueries, PastReads
from headwater.history.points import write_points
from headwater.history.recomputing import Recomputation
from headwater.history.served_spans import ServedSpans, served_spans
from headwater.model.progress import OnStep
from headwater.ports import FrameReader


class HistoryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The features to read for the rows of a frame, and how."""

    features: Sequence[FeatureDef]
    at: str = "timestamp"
    known: bool = False
    with_as_of: bool = False
    progress: OnStep | None = None


async def _never_pruned() -> None:
    return None


class PastSources(msgspec.Struct, frozen=True):
    """Where past values come from.

    ``history`` has the values that were stored; ``reader`` computes others from them as it does for
    serving; ``queries`` runs the queries of SQL features, whose rows may be of the past. Only some
    features need these two. ``earliest`` returns the moment up to which history was pruned.
    ``names`` says which series and default a feature had at each moment.
    """

    history: FrameReader
    reader: Reader | None = None
    queries: PastQueries | None = None
    earliest: Callable[[], Awaitable[datetime | None]] = _never_pruned
    names: PastNames | None = None


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
    with TemporaryDirectory(prefix="headwater-") as name, ExitStack() as undo:
        undo.callback(frame.discard)
        folder = Path(name)
        points = [folder / f"points{number}.parquet" for number in range(len(plans))]
        rows = await asyncio.to_thread(_prepare, frame, spine, columns, points)
        served = ServedSpans()
        if request.known and past.names is not None:
            served = await asyncio.to_thread(served_spans, request.features, past.names, points[0])
            plans = plan_columns(served.features, known=True)
            columns = result_columns(plans, order, with_as_of=request.with_as_of)
        await _track_rows(plans, points)
        answering = _Answering(past, request, served, folder, rows, sum(map(_answers_of, plans)))
        for plan, file in zip(plans, points, strict=True):
            await answering.answer(plan, file)
        if (later := await past.earliest()) != spine.earliest:
            # Values may have been pruned before they were read.
            pruned = msgspec.structs.replace(spine, earliest=later)
            await asyncio.to_thread(_prepare, frame, pruned, columns, points)
        result = FrameResult(answering.answers, columns)
        attached = await asyncio.to_thread(_attach, frame, result, folder)
        undo.pop_all()
        return attached


async def _track_rows(plans: Sequence[ColumnPlan], points: Sequence[Path]) -> None:
    """Track the entities of a frame, if the reads of a function are tracked."""
    if current_scope().reads is None:
        return
    for plan, file in zip(plans, points, strict=True):
        ids = await asyncio.to_thread(_ids, file)
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


def _answers_of(plan: ColumnPlan) -> int:
    return len(plan.readings) + bool(plan.computed)


class _Answering:
    """Answers plans one after the other, each answer in a file."""

    def __init__(
        self,
        past: PastSources,
        request: HistoryRequest,
        served: ServedSpans,
        folder: Path,
        rows: int,
        total: int,
    ) -> None:
        self._reader = past.reader
        self._served = served
        self._reads = PastReads(past.history, past.queries, folder)
        self._request = request
        self._folder = folder
        self._rows = rows
        self._total = total
        self.answers: list[Path] = []

    async def answer(self, plan: ColumnPlan, points: Path) -> None:
        """Answer the readings of a plan and its computed features."""
        for reading in plan.readings:
            report, answer = self._reporter(), self._new_answer()
            await self._read(points, reading, answer, report)
            await asyncio.to_thread(check_values, reading, points, answer)
        if plan.computed:
            assert self._reader is not None, "computed features need an open store"
            computing = Recomputation(
                self._reader, self._reads, self._folder, known=self._request.known
            )
            report = self._reporter()
            await computing.answer(plan.computed, points, self._new_answer(), report)

    async def _read(
        self, points: Path, reading: Reading, answer: Path, report: Callable[[int], None] | None
    ) -> None:
        """Read a reading, in each version that was served, and choose by the moment of the row."""
        versioned = self._served.versioned(reading)
        if versioned is None:
            return await self._reads.read(points, reading, answer, report)
        every = answer.with_suffix(".every.parquet")
        await self._reads.read(points, versioned.reading, every, report)
        await asyncio.to_thread(versioned.write, points, every, answer)
        return None

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
    if not texts:
        return  # a list of no dicts has no columns
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
