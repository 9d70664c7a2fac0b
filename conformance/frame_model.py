"""A plain model of history, and frames that are read from a store to compare with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
from msgspec.structs import replace

from conformance.suite import START, Opened
from headwater.core.clock import MICROSECOND, to_micros
from headwater.core.codec import Kind
from headwater.core.partitioning import bucket_of
from headwater.model.values import Cell
from headwater.ports import Change, FrameColumn, FrameQuery, FrameReader, SeriesQuery

ORIGIN = to_micros(START)
"""The start, in microseconds."""

_number = count()


class Row(NamedTuple):
    """A value of one series; its times are microseconds after the start."""

    series: str
    entity_id: str
    value: Any
    as_of: int
    written_at: int


class At(NamedTuple):
    """A point: an entity, and microseconds after the start."""

    entity_id: str
    at: int


class Group(NamedTuple):
    """Rows that are written together, and how."""

    rows: Sequence[Row]
    is_import: bool = False
    is_maintained: bool = False


def found(
    rows: Sequence[Row], point: At, column: FrameColumn, *, known: bool
) -> tuple[Any, int] | None:
    """Return the value of a point and its ``as_of``: what every engine has to find."""
    candidates = [
        (row.as_of, row.written_at, number, row.value)
        for number, row in enumerate(rows)
        if (row.series, row.entity_id) == (column.series, point.entity_id)
        and (row.written_at if known else row.as_of) <= point.at
    ]
    if not candidates:
        return None
    as_of, written_at, _, value = max(candidates, key=lambda each: each[:3])
    start, ttl = written_at if known else as_of, column.ttl
    if known:
        earlier = (each for until, each in column.earlier_ttls if ORIGIN + written_at < until)
        ttl = next(earlier, ttl)
    if ttl is not None and point.at >= start + ttl // MICROSECOND:
        return None
    return value, as_of


async def write(store: Opened, kind: Kind, groups: Sequence[Group]) -> None:
    """Write groups of rows in order."""
    for group in groups:
        changes = [_change(row, kind) for row in group.rows]
        if group.is_import:
            # So that all rows before these have their numbers.
            await store.offline.maintain()
            await store.offline.append(changes)
        else:
            await store.online.put(changes)
        if group.is_maintained:
            await store.offline.maintain()


def _change(row: Row, kind: Kind) -> Change:
    raw = msgspec.Raw(msgspec.json.encode(row.value))
    cell = Cell(raw, ORIGIN + row.as_of, ORIGIN + row.written_at)
    # Each has another cause: an import leaves out rows that are equal in everything else.
    return Change(row.series, "User", row.entity_id, kind, cell, f"test-{next(_number)}")


def write_extra(folder: Path, rows: Sequence[Row]) -> Path:
    """Write rows that are not in history to a file."""
    table = [
        {
            "entity_id": row.entity_id,
            "value": msgspec.json.encode(row.value).decode(),
            "as_of": ORIGIN + row.as_of,
        }
        for row in rows
    ]
    types = {"entity_id": "VARCHAR", "value": "VARCHAR", "as_of": "BIGINT"}
    return _write_table(folder / f"extra-{next(_number)}.parquet", table, types)


def _write_table(file: Path, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> Path:
    lines = file.with_suffix(".ndjson")
    lines.write_bytes(msgspec.json.Encoder().encode_lines(rows))
    with duckdb.connect() as duck:
        duck.execute(
            f"COPY (SELECT * FROM read_json('{lines}', format = 'newline_delimited',"
            f" columns = {dict(types)!r})) TO '{file}' (FORMAT parquet)"
        )
    return file


def needed(rows: Sequence[Row], points: Sequence[At], reach: int, *, known: bool) -> list[Row]:
    """Return the rows that some points may need, in the order of a file of a series."""
    numbered = [
        (row.entity_id, row.written_at if known else row.as_of, row.written_at, number, row)
        for number, row in enumerate(rows)
        if (of_entity := [point.at for point in points if point.entity_id == row.entity_id])
        and row.as_of >= min(of_entity) - reach
        and (row.written_at if known else row.as_of) <= max(of_entity)
    ]
    return [row for *_, row in sorted(numbered, key=lambda each: each[:4])]


async def read_series(
    reader: FrameReader, folder: Path, points: Sequence[At], query: SeriesQuery
) -> list[list[Row]]:
    """Return the rows of a series that a reader writes, of each file."""
    own = folder / f"series-{next(_number)}"
    own.mkdir()
    query = replace(query, points=write_points(own, points))
    files = []
    for written in await reader.write_series(query, own):
        with duckdb.connect() as duck:
            columns = "entity_id, value, as_of, written_at, visible_from"
            found = duck.execute(f"SELECT {columns} FROM read_parquet('{written.rows}')").fetchall()
        assert [row[4] for row in found] == [row[3 if query.known else 2] for row in found]
        first, last = written.buckets
        assert all(first <= bucket_of(row[0]) <= last for row in found)
        files.append(
            [
                Row(query.series, entity_id, json.loads(value), as_of - ORIGIN, written - ORIGIN)
                for entity_id, value, as_of, written, _ in found
            ]
        )
    return files


def write_points(folder: Path, points: Sequence[At]) -> Path:
    """Write points to a file, not in their order."""
    numbered = sorted(enumerate(points), key=lambda each: (each[0] % 7, -each[0]))
    rows = [
        {"row": row, "entity_id": entity_id, "at": ORIGIN + at} for row, (entity_id, at) in numbered
    ]
    types = {"row": "BIGINT", "entity_id": "VARCHAR", "at": "BIGINT"}
    return _write_table(folder / f"points-{next(_number)}.parquet", rows, types)


class FrameRead:
    """A query and its answer."""

    def __init__(
        self,
        folder: Path,
        points: Sequence[At],
        columns: Sequence[FrameColumn],
        *,
        known: bool = False,
        extra: Mapping[str, Path] | None = None,
    ) -> None:
        number, file = next(_number), write_points(folder, points)
        self.columns = columns
        self.types: list[str] = []
        self._query = FrameQuery(file, columns, known, extra or {})
        self._answer = folder / f"answer-{number}.parquet"

    async def read(
        self, reader: FrameReader, progress: Callable[[int], None] | None = None
    ) -> list[list[tuple[Any, int] | None]]:
        """Return the value and its ``as_of`` in each row and column, None for nothing."""
        await reader.read_frame(self._query, self._answer, progress)
        with duckdb.connect() as duck:
            duck.execute("SET TimeZone = 'UTC'")
            relation = duck.from_parquet(str(self._answer))
            self.types = [str(kind) for kind in relation.types]
            numbers = range(len(self.columns))
            names = ["row", *(f"{letter}{n}" for n in numbers for letter in "va")]
            assert relation.columns == names
            # DuckDB needs another package to give an aware time to Python.
            plain = [
                f"CAST({name} AS TIMESTAMP)" if "TIME ZONE" in kind else name
                for name, kind in zip(names, self.types, strict=True)
            ]
            rows = relation.project(", ".join(plain)).fetchall()
        assert [row[0] for row in rows] == list(range(len(rows)))
        return [[self._cell(row, number) for number in numbers] for row in rows]

    def _cell(self, row: Sequence[Any], number: int) -> tuple[Any, int] | None:
        value, as_of = row[1 + 2 * number : 3 + 2 * number]
        if as_of is None:
            assert value is None
            return None
        if isinstance(value, datetime):
            value = value.replace(tzinfo=UTC)
        if self.columns[number].kind == "json" and value is not None:
            value = json.loads(value)
        return value, as_of - ORIGIN
