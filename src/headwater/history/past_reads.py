"""Past values from the queries of SQL features that return times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from shutil import rmtree

from msgspec.structs import replace

from headwater.core.clock import Clock
from headwater.core.duckdb_session import parquet, session
from headwater.core.interruptible import in_thread
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.features.query_rows import query_columns, query_values
from headwater.history.columns import ColumnReading
from headwater.history.window_frames import WindowFrames, window_readings
from headwater.ports import Backends, Change, FrameQuery, FrameReader

_COLUMNS = {"entity_id": "VARCHAR", "value": "VARCHAR", "as_of": "BIGINT"}


class PastQueries:
    """Runs the queries of SQL features, once for each point-in-time read."""

    def __init__(self, backends: Backends, registry: Registry, clock: Clock) -> None:
        self._backends = backends
        self._registry = registry
        self._clock = clock

    async def write_rows(self, feature: FeatureDef, folder: Path) -> Path | None:
        """Write the rows of a feature's query to a Parquet file; None if they have no times.

        Rows of erased entities are left out.
        """
        sql, sources = feature.sql or "", self._registry.sources
        offline = self._backends.offline
        columns = await offline.prepare(sql, sources)
        if query_columns(feature, columns).timestamp is None:
            return None
        rows = await offline.query(sql, sources)
        now, file = self._clock.now(), folder / f"query-{feature.series}.parquet"
        queried = await asyncio.to_thread(query_values, feature, rows, now, "query")
        if queried.refused:
            (entity_id, error), count = queried.refused[0], len(queried.refused)
            raise InvalidInputError(
                f"the query of feature {feature.name!r} returns {count} of "
                f"{count + len(queried.changes)} rows that are not values of it, such as that of "
                f"{entity_id!r}: {error}; leave such rows out in the query"
            )
        admitted = await without_erased(self._backends, queried.changes)
        await in_thread(_write, admitted, folder, file)
        return file


class PastReads:
    """The reads of one point-in-time read: history, united with the rows of queries.

    The query of a feature runs once, and not for values that were known, which are in history.
    """

    def __init__(
        self,
        history: FrameReader,
        windows: WindowFrames,
        queries: PastQueries | None,
        folder: Path,
    ) -> None:
        self._history = history
        self._windows = windows
        self._queries = queries
        self._folder = folder
        self._numbers = count()
        self._files: dict[str, Path | None] = {}

    async def read(
        self,
        points: Path,
        reading: ColumnReading,
        answer: Path,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Read features at some points, as ``FrameReader.read_frame`` does."""
        windows = window_readings(reading.features, reading.columns, known=reading.known)
        if not windows:
            await self._read_frame(points, reading, answer, progress)
            return
        of_windows = {place for some in windows for place in some.places}
        plain = [place for place in range(len(reading.features)) if place not in of_windows]
        folder = self._folder / f"windows{next(self._numbers)}"
        folder.mkdir()
        answers, rows = [], 0
        for number, some in enumerate(windows):
            report = progress and partial(_report, progress, rows, number, len(windows))
            files, rows = await self._windows.answer(some, points, folder, report)
            answers.append((files, [(place, place) for place in some.places]))
        if plain:
            features = [reading.features[place] for place in plain]
            file = folder / "plain.parquet"
            await self._read_frame(points, replace(reading, features=features), file, None)
            answers.append(([file], [(place, own) for own, place in enumerate(plain)]))
        await in_thread(_join, answers, len(reading.features), answer)
        rmtree(folder)

    async def _read_frame(
        self,
        points: Path,
        reading: ColumnReading,
        answer: Path,
        progress: Callable[[int], None] | None,
    ) -> None:
        extra = {} if reading.known else await self._extra(reading.features)
        query = FrameQuery(points, reading.columns, reading.known, extra)
        await self._history.read_frame(query, answer, progress)

    async def _extra(self, features: Sequence[FeatureDef]) -> dict[str, Path]:
        if self._queries is None:
            return {}
        for feature in features:
            if feature.sql is not None and feature.series not in self._files:
                file = await self._queries.write_rows(feature, self._folder)
                self._files[feature.series] = file
        files = {feature.series: self._files.get(feature.series) for feature in features}
        return {series: file for series, file in files.items() if file is not None}


def _report(progress: Callable[[int], None], rows: int, number: int, total: int, done: int) -> None:
    """Report the progress of one of several reads, which all have the same number of rows."""
    progress((number * rows + done) // total)


_Answers = Sequence[tuple[Sequence[Path], Sequence[tuple[int, int]]]]
"""Files with all rows together, and the columns to take: their numbers, and those in the files."""


def _join(answers: _Answers, columns: int, answer: Path) -> None:
    """Write an answer that has the columns of several ones."""
    selected = [""] * columns
    for number, (_, places) in enumerate(answers):
        for place, own in places:
            selected[place] = f", e{number}.v{own} AS v{place}, e{number}.a{own} AS a{place}"
    (first, _), *others = answers
    tables = f"({parquet(first)}) AS e0"
    for number, (files, _) in enumerate(others, 1):
        tables += f" JOIN ({parquet(files)}) AS e{number} USING (row)"
    with session(answer.parent) as duck:
        duck.write(f"SELECT row{''.join(selected)} FROM {tables} ORDER BY row", answer)


async def without_erased(backends: Backends, changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes of entities that were not erased, or that have values again."""
    ledger = await backends.erasures.refresh()
    if not ledger.revision:
        return changes
    erased = sorted({change.key for change in changes if ledger.find(*change.key)})
    returned = set()
    for entity in {entity for entity, _ in erased}:
        ids = [entity_id for kind, entity_id in erased if kind == entity]
        cells = await backends.online.get(entity, ids)
        returned |= {
            (entity, entity_id) for entity_id, held in zip(ids, cells, strict=True) if held
        }
    return ledger.admitted(changes, returned.__contains__).changes


def _write(changes: Sequence[Change], folder: Path, file: Path) -> None:
    rows = [
        {
            "entity_id": change.entity_id,
            "value": bytes(change.cell.value).decode(),
            "as_of": change.cell.as_of,
        }
        for change in changes
    ]
    with session(folder) as duck:
        duck.load_rows("queried", rows, _COLUMNS)
        duck.write("FROM queried", file)
