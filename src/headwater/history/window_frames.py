"""Columns of windows: the values of families at the rows of a frame, by tasks for some buckets.

A task reads the contributions and the points of its entities in order, so it keeps the state of
one entity at a time, however long its history is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.core.codec import Kind
from headwater.core.duckdb_session import Session, parquet, session
from headwater.core.interruptible import in_thread
from headwater.core.partitioning import bucket_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.windows import WindowDef
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.history.window_sums import add_sums, beginning, is_summable
from headwater.ports import FrameColumn, FrameReader, Runner, SeriesFile, SeriesQuery, misfit_error
from headwater.windows.plan import Member, WindowPlan
from headwater.windows.replay import Contribution, EntityReplay, oldest_counted

ROWS_OF_A_TASK = 2_000_000
"""About how many contributions and points one task has."""
_ROWS_AT_ONCE = 10_000
_INT64 = range(-(2**63), 2**63)
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN"}
_BUCKETS = """
CREATE TABLE buckets AS SELECT entity_id, bucket_of(entity_id) AS bucket
FROM (SELECT DISTINCT entity_id FROM ({points}))
"""
_SPLIT = """
SELECT points.* FROM ({points}) AS points JOIN buckets USING (entity_id)
WHERE bucket BETWEEN {first} AND {last}
"""
_EARLY = """
SELECT count(*), min("row"), arg_min("at", "row") FROM ({points})
WHERE {beginning} < {earliest}
"""
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.decode


class WindowColumn(msgspec.Struct, frozen=True):
    """A column of windows: a feature of a family or, without a member, all of them by name."""

    name: str
    kind: Kind
    member: Member | None

    def plain(self, value: Any) -> Any:
        """Return a value in the form of its column."""
        if value is None:
            return None
        if self.kind == "json":
            return _encode(value).decode()
        if self.kind == "int" and value not in _INT64:
            raise FeatureValueError(
                self.name, f"is {value} at a row of the frame, and a column has integers of 64 bits"
            )
        return value


class WindowReading(msgspec.Struct, frozen=True):
    """Columns of one family, from one series."""

    series: str
    windows: WindowDef
    columns: Sequence[WindowColumn]
    places: Sequence[int]
    """The numbers of the columns in the answer."""
    known: bool

    @property
    def is_whole(self) -> bool:
        """Whether all features of the family are read."""
        return any(column.member is None for column in self.columns)

    @property
    def members(self) -> list[Member]:
        """The features of the family that are read."""
        if self.is_whole:
            return self.windows.all_members
        return [column.member for column in self.columns if column.member is not None]

    @property
    def plan(self) -> WindowPlan:
        """What has to be folded for them."""
        return self.windows.plan.of_members(self.members)


def window_readings(
    features: Sequence[FeatureDef], columns: Sequence[FrameColumn], *, known: bool
) -> list[WindowReading]:
    """Return how the features of families among some features are read.

    A family stands for all of its features.
    """
    readings: dict[str, WindowReading] = {}
    for place, (feature, column) in enumerate(zip(features, columns, strict=True)):
        windows, member = feature.windows, None
        if feature.window is not None:
            windows, member = feature.window.of, feature.window.member
        if windows is None:
            continue
        own = WindowColumn(feature.name, column.kind, member)
        before = readings.get(feature.series)
        readings[feature.series] = WindowReading(
            feature.series,
            windows,
            [*(before.columns if before else ()), own],
            [*(before.places if before else ()), place],
            known,
        )
    return list(readings.values())


class WindowFrames:
    """Answers columns of windows from a history."""

    def __init__(self, history: FrameReader, runner: Runner, earliest: datetime | None) -> None:
        self._history = history
        self._runner = runner
        self._earliest = earliest

    async def answer(
        self,
        reading: WindowReading,
        points: Path,
        folder: Path,
        progress: Callable[[int], None] | None,
    ) -> tuple[list[Path], int]:
        """Write the columns of a reading to files in a folder; return these, and how many rows."""
        if self._earliest is not None:
            await in_thread(_check_horizon, reading, points, self._earliest)
        reach = reading.plan.reach
        query = SeriesQuery(points, reading.series, reach, reading.known, ROWS_OF_A_TASK)
        files = await self._history.write_series(query, folder)
        parts = await in_thread(_parts, reading, points, files, folder)
        if len(parts) == 1:
            # It takes less time than to begin with a runner.
            done = await in_thread(parts[0].run)
            if progress is not None:
                progress(done)
            return [parts[0].answer], done
        done = 0
        async with aclosing(self._runner.map(parts)) as counts:
            async for count in counts:
                done += count
                if progress is not None:
                    progress(done)
        return [part.answer for part in parts], done


def _check_horizon(reading: WindowReading, points: Path, earliest: datetime) -> None:
    """Raise InvalidInputError if a window of a row begins before history was pruned."""
    windows = [member.window for member in reading.members]
    longest = max(windows, key=lambda window: window.span)
    with session(points.parent) as duck:
        sql = _EARLY.format(
            points=parquet([points]),
            beginning=f"least({', '.join(map(beginning, windows))})",
            earliest=to_micros(earliest),
        )
        count, row, at = duck.run(sql).fetchall()[0]
    if count:
        others = f", and {count - 1} more such rows" if count > 1 else ""
        raise InvalidInputError(
            f"row {row} is of {from_micros(at).isoformat()}{others}, and the window of "
            f"{longest.name} before it begins before {earliest.isoformat()}, up to which history "
            "was pruned; leave such rows out, or read from an export that still has it, with "
            "exported="
        )


def _parts(
    reading: WindowReading, points: Path, files: Sequence[SeriesFile], folder: Path
) -> list[WindowPart]:
    """Return a task for each file of contributions, with the points of its buckets."""
    parts = []
    with session(folder) as duck:
        if len(files) > 1:
            # DuckDB has no function for it.
            duck.connection.create_function("bucket_of", bucket_of, ["VARCHAR"], "USMALLINT")
            duck.run(_BUCKETS.format(points=parquet([points])))
        for number, file in enumerate(files):
            own = points
            if len(files) > 1:
                first, last = file.buckets
                own = folder / f"{reading.series}-points{number}.parquet"
                duck.write(_SPLIT.format(points=parquet([points]), first=first, last=last), own)
            answer = folder / f"{reading.series}-answer{number}.parquet"
            parts.append(WindowPart(reading, file.rows, own, answer))
    return parts


class WindowPart(msgspec.Struct, frozen=True):
    """A task: answer some points of a frame from the contributions of their entities."""

    reading: WindowReading
    rows: Path
    points: Path
    answer: Path

    @property
    def inputs(self) -> Sequence[Path]:
        """The files that it reads."""
        return self.rows, self.points

    def run(self) -> int:
        """Write the answer in the order of ``row``; return the number of points."""
        with session(self.answer.parent) as duck:
            if not self._has_sums(duck):
                self.fold(duck)
            return duck.write_whole(self._selected(), self.answer)

    def _has_sums(self, duck: Session) -> bool:
        """Create the table ``answers`` by SQL, if that is exact."""
        reading, members = self.reading, self.reading.members
        if not is_summable(
            reading.windows, [column.member for column in reading.columns], known=reading.known
        ):
            return False
        return add_sums(duck, self.rows, self.points, reading.windows, members)

    def fold(self, duck: Session) -> None:
        """Create the table ``answers`` by the kernel."""
        lines = duck.folder / "answers.ndjson"
        longest = self._write_lines(duck, lines)
        columns = {"row": "BIGINT", "at": "BIGINT"}
        for number, column in enumerate(self.reading.columns):
            columns[f"v{number}"] = _TYPES.get(column.kind, "VARCHAR")
        duck.load("answers", lines, columns, longest=longest)
        lines.unlink()

    def _selected(self) -> str:
        selected = ["row"]
        for number, (place, column) in enumerate(
            zip(self.reading.places, self.reading.columns, strict=True)
        ):
            value = f"v{number}"
            if column.kind == "time":
                value = f"CAST({value} AS TIMESTAMPTZ)"
            elif column.kind == "json":
                value = f"CAST({value} AS VARCHAR)"
            # A value of a window is of the moment at which it is read.
            moment = f'CASE WHEN v{number} IS NOT NULL THEN "at" END'
            selected += [f"{value} AS v{place}", f"{moment} AS a{place}"]
        return f"SELECT {', '.join(selected)} FROM answers ORDER BY row"

    def _write_lines(self, duck: Session, file: Path) -> int:
        """Write a line of JSON for each point; return the length of the longest."""
        longest, lines = 0, list[dict[str, Any]]()
        with file.open("wb") as output:
            for line in self._lines(duck):
                lines.append(line)
                if len(lines) == _ROWS_AT_ONCE:
                    longest = max(longest, _append(output.write, lines))
            return max(longest, _append(output.write, lines))

    def _lines(self, duck: Session) -> Iterator[dict[str, Any]]:
        plan, members = self.reading.plan, self.reading.members
        # One of two connections, because both results are fetched in turns.
        points = duck.connection.cursor().execute(
            f'SELECT entity_id, "at", row FROM ({parquet([self.points])}) ORDER BY ALL'
        )
        contributions = _pages(duck.run(parquet([self.rows])))
        waiting = next(contributions, None)
        entity_id, replay = None, EntityReplay(plan, members)
        for of, at, row in _pages(points):
            if of != entity_id:
                entity_id, replay = of, EntityReplay(plan, members)
                while waiting is not None and waiting[0] < of:
                    waiting = next(contributions, None)
            oldest = oldest_counted(plan, at)
            while waiting is not None and waiting[0] == of and waiting[1] <= at:
                if waiting[2] >= oldest:
                    self._add(replay, *waiting)
                waiting = next(contributions, None)
            values = replay.values(at)
            if self.reading.is_whole:
                values = [dict(zip(self.reading.windows.members, values, strict=True))]
            line = {"row": row, "at": at}
            for number, column in enumerate(self.reading.columns):
                line[f"v{number}"] = column.plain(values[number])
            yield line

    def _add(
        self, replay: EntityReplay, of: str, visible_from: int, at: int, written_at: int, text: str
    ) -> None:
        try:
            taken = self.reading.windows.taken(_decode(text))
            if taken is not None:
                replay.add(Contribution(visible_from, at, written_at, *taken))
        except (TypeError, ValueError, AttributeError) as error:
            # A value of another type, from before the feature was a family.
            column = FrameColumn(self.reading.series, "json")
            raise misfit_error(
                column, count=1, example=text, entity_id=of, expected="a contribution"
            ) from error


def _append(write: Callable[[bytes], object], lines: list[dict[str, Any]]) -> int:
    encoded = _encode_lines(lines)
    write(encoded)
    lines.clear()
    return max(map(len, encoded.splitlines()), default=0)


def _pages(result: Any) -> Iterator[tuple[Any, ...]]:
    while page := result.fetchmany(_ROWS_AT_ONCE):
        yield from page
