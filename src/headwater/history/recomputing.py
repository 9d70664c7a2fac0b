"""Columns of computed features: templates and derived features at each row's moment.

Each value is computed by the reader that serves values, from the values of that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
from msgspec.structs import asdict, replace

from headwater.core.batching import batched
from headwater.core.clock import from_micros, to_micros
from headwater.core.concurrency import run_concurrently
from headwater.core.deadlines import Slot
from headwater.core.duckdb_session import Session, parquet, scalar, session
from headwater.declarations.features import FeatureDef
from headwater.errors import FeatureFailedError, HeadwaterError, InvalidInputError
from headwater.features.batch_state import BatchState, HandlerTransaction
from headwater.features.call_scope import current_scope, track_sources
from headwater.features.conversions import last_cell
from headwater.features.reader import Reader
from headwater.history.columns import ColumnReading, is_of_its_computation
from headwater.history.past_reads import PastReads
from headwater.model.values import INTERNAL, Cell, Cells, EntityKey, FeatureValue, ServiceEvent
from headwater.ports import Change, Delivery, DocumentWrite

_ROWS = 10_000
_CONCURRENT = 200
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "text": "VARCHAR"}
_POINT_COLUMNS = {"row": "BIGINT", "entity_id": "VARCHAR", "at": "BIGINT"}
_LEFT_COLUMNS = {"item": "BIGINT", "of_moment": "BOOLEAN"}
_encode_lines = msgspec.json.Encoder().encode_lines
LoadedValues = Mapping[tuple[str, str, int], Cell | None]
"""Past values, by series, entity id and moment."""


class _EntityMoment(msgspec.Struct, frozen=True):
    """An entity at a moment, in microseconds."""

    entity_id: str
    at: int


class _Item(NamedTuple):
    """A computation: the first of the rows that share it, with its entity and moment."""

    rows: int
    row: int
    of_moment: bool
    """Whether its rows have one moment; else they have one state, at any moments."""
    entity_id: str
    at: int


class _Run(NamedTuple):
    """A run of a function: its value, or the values that it needs first, by series and id."""

    value: FeatureValue | None
    missing: Mapping[tuple[str, str], FeatureDef]
    inputs: Mapping[str, FeatureDef]
    """Those of them that are of its own entity, by series."""
    is_shared: bool
    """Whether it did not ask for the time and needs nothing of other entities."""


class _Missing(msgspec.Struct):
    """Features of one entity and the moments at which they are needed."""

    features: dict[str, FeatureDef] = {}
    points: dict[_EntityMoment, None] = {}


class _Column:
    """A feature that is computed, what is known about its function, and its values so far."""

    def __init__(self, feature: FeatureDef, place: int, lines: Path) -> None:
        self.feature = feature
        self.place = place
        self.inputs: dict[str, FeatureDef] = {}
        """What it reads of its own entity, by series."""
        self.of_moment = False
        """Whether the first row has shown that it asks for the time or reads other entities."""
        self.lines = lines
        self.longest = 0

    def learn(self, run: _Run) -> None:
        """Add what a run shows about the function."""
        self.of_moment |= not run.is_shared
        self.inputs |= run.inputs

    def write(self, values: Mapping[int, FeatureValue]) -> None:
        """Write the values of items as lines of JSON."""
        if not values:
            return
        with self.lines.open("ab") as output:
            lines = _encode_lines([self._line(item, value) for item, value in values.items()])
            output.write(lines)
            self.longest = max(self.longest, *map(len, lines.splitlines()))

    def _line(self, item: int, value: FeatureValue) -> dict[str, Any]:
        plain: Any = None
        if value.value is not None:
            # In the form of its column: JSON text of an object, else the value itself.
            is_json = self.feature.codec.kind == "json"
            plain = value.value.decode() if is_json else msgspec.Raw(value.value)
        as_of = None if value.as_of is None else to_micros(value.as_of)
        return {"item": item, "v": plain, "a": as_of}


class Recomputation:
    """The computed features of one entity at the rows of a frame.

    A feature is computed once for each entity and state, the values of the entity that it reads.
    The first row shows which these are. If a state needs further ones, its rows are divided by
    these as well, and if its function asks for the time or reads other entities, by their moments:
    a function that has not asked yet does the same at each of them.
    """

    def __init__(self, reader: Reader, reads: PastReads, folder: Path, *, known: bool) -> None:
        self._reader = reader
        self._reads = reads
        self._folder = folder
        self._known = known
        self._loaded: dict[tuple[str, str, int], Cell | None] = {}
        self._answers: dict[str, tuple[Path, int]] = {}
        """The file that has a series for all rows, and its place there."""
        self._has_provenance = current_scope().reads is not None
        self._numbers = count()
        self._duck: Session

    async def answer(
        self,
        features: Sequence[FeatureDef],
        points: Path,
        answer: Path,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Write the columns of features, as ``FrameReader.read_frame`` does for stored ones."""
        columns = [_Column(f, place, self._new_file("ndjson")) for place, f in enumerate(features)]
        with ExitStack() as stack:
            self._duck = await asyncio.to_thread(stack.enter_context, session(self._folder))
            rows = await self._duck.in_thread(self._load_points, points)
            await self._learn(columns if rows else (), points)
            done = 0
            for column in columns:
                async for settled in self._settle(column, points):
                    done += settled
                    if progress is not None:
                        progress(done // len(columns))
            await self._duck.in_thread(self._to_parquet, columns, answer)

    def _load_points(self, points: Path) -> int:
        """Load the points, each with the era in which features meant the same; return their number.

        Only values that were known are of the features of their time.
        """
        changes = [to_micros(moment) for moment in self._reader.changes] if self._known else []
        era = f'len(list_filter({changes}, c -> c <= "at"))' if changes else "0"
        self._duck.run(
            f'CREATE TABLE points AS SELECT row, entity_id, "at", {era} AS era'
            f" FROM ({parquet([points])})"
        )
        return int(scalar(self._duck.run("SELECT count(*) FROM points")))

    async def _learn(self, columns: Sequence[_Column], points: Path) -> None:
        """Learn from the first row what functions read, and whether other rows can share it."""
        left = columns
        while left:
            inputs = list({s: f for c in columns for s, f in c.inputs.items()}.values())
            await self._read_inputs(points, inputs)
            cells, joins = self._selected(inputs)
            sql = f'SELECT 1, row, true, entity_id, "at"{cells} FROM points{joins} ORDER BY row'
            (row,) = await self._duck.in_thread(self._fetch, f"{sql} LIMIT 1")
            self._load(inputs, [row[3:]])
            item = _Item(*row[:5])
            runs = {c: run for c in left for run in await self._compute(c.feature, [item])}
            for column, run in runs.items():
                column.learn(run)
            left = [column for column, run in runs.items() if run.inputs]
        self._loaded.clear()

    async def _settle(self, column: _Column, points: Path) -> AsyncIterator[int]:
        """Compute a feature at all rows; yield how many more of them have a value."""
        await self._duck.in_thread(self._begin, column)
        left: dict[int, bool] | None = None
        while left is None or left:
            await self._read_inputs(points, column.inputs.values())
            inputs, left = list(column.inputs.values()), {}
            cursor = self._duck.connection.cursor()  # others run between two pages
            await self._duck.in_thread(self._group, cursor, inputs)
            while rows := await self._duck.in_thread(cursor.fetchmany, _ROWS):
                self._load(inputs, [row[3:] for row in rows])
                items = [_Item(*row[:5]) for row in rows]
                values, unsettled = await self._compute_page(column, items)
                left |= unsettled
                await asyncio.to_thread(column.write, values)
                self._loaded.clear()
                yield sum(item.rows for item in items if item.row in values)
            await self._duck.in_thread(self._divide, column, left)

    def _begin(self, column: _Column) -> None:
        column.lines.touch()
        self._duck.run(f"CREATE TABLE settled{column.place} (row BIGINT, item BIGINT)")
        of_moment = str(column.of_moment)
        self._duck.run(f"CREATE TABLE todo AS SELECT row, {of_moment} AS of_moment FROM points")

    def _group(self, cursor: duckdb.DuckDBPyConnection, inputs: Sequence[FeatureDef]) -> None:
        """Group the rows that are left into items, and select these with the values of inputs."""
        cells, joins = self._selected(inputs)
        self._duck.run(
            "CREATE TABLE grouped AS SELECT min(row) OVER same AS item, count(*) OVER same AS rows,"
            f' row, of_moment, entity_id, "at"{cells} FROM points JOIN todo USING (row){joins}'
            " WINDOW same AS (PARTITION BY entity_id, era, of_moment,"
            f' CASE WHEN of_moment THEN "at" END{cells})'
        )
        cursor.execute("SELECT * EXCLUDE item FROM grouped WHERE row = item ORDER BY row")

    def _selected(self, inputs: Sequence[FeatureDef]) -> tuple[str, str]:
        """Return the SQL of value and ``as_of`` of each input, and of joins with their files."""
        files = list(dict.fromkeys(self._answers[feature.series][0] for feature in inputs))
        cells = ""
        for file, place in (self._answers[feature.series] for feature in inputs):
            cells += f", e{files.index(file)}.v{place}, e{files.index(file)}.a{place}"
        joins = "".join(
            f" JOIN ({parquet([file])}) AS e{n} USING (row)" for n, file in enumerate(files)
        )
        return cells, joins

    def _divide(self, column: _Column, left: Mapping[int, bool]) -> None:
        """Note the items of the rows that have a value; the others are to be grouped again."""
        rows = [{"item": item, "of_moment": of_moment} for item, of_moment in left.items()]
        self._duck.load_rows("unsettled", rows, _LEFT_COLUMNS)
        self._duck.run(
            f"INSERT INTO settled{column.place} SELECT row, item"
            " FROM grouped ANTI JOIN unsettled USING (item)"
        )
        self._duck.run(
            "CREATE OR REPLACE TABLE todo AS SELECT row, unsettled.of_moment"
            " FROM grouped JOIN unsettled USING (item)"
        )
        self._duck.run("DROP TABLE grouped; DROP TABLE unsettled")
        if not left:
            self._duck.run("DROP TABLE todo")

    def _load(self, inputs: Sequence[FeatureDef], rows: Iterable[Sequence[Any]]) -> None:
        """Load values: rows of entity id, moment, and value and ``as_of`` of each input."""
        for entity_id, at, *columns in rows:
            for place, feature in enumerate(inputs):
                value, as_of = columns[2 * place], columns[2 * place + 1]
                self._loaded[feature.series, entity_id, at] = (
                    None
                    if as_of is None
                    else Cell(msgspec.Raw((value or "null").encode()), as_of, as_of, derived=False)
                )

    async def _compute_page(
        self, column: _Column, items: Sequence[_Item]
    ) -> tuple[dict[int, FeatureValue], dict[int, bool]]:
        """Return the values of items by row, and the items whose rows have to be divided further.

        These are divided by their moments (True), or by the inputs that are known by now.
        """
        values: dict[int, FeatureValue] = {}
        unsettled: dict[int, bool] = {}
        while items:
            runs = list(zip(items, await self._compute(column.feature, items), strict=True))
            for item, run in runs:
                if run.value is not None and (item.of_moment or item.rows == 1 or run.is_shared):
                    values[item.row] = run.value
                elif not item.of_moment:
                    unsettled[item.row] = not run.is_shared
                column.learn(run)
            items = [item for item in items if item.row not in values and item.of_moment]
            await self._load_missing([(item, run) for item, run in runs if item.of_moment])
        track_sources(part for value in values.values() for part in value.provenance)
        return values, unsettled

    async def _compute(self, feature: FeatureDef, items: Sequence[_Item]) -> list[_Run]:
        """Run a function at each item, as far as values are loaded."""
        runs: dict[int, _Run] = {}
        failures: list[HeadwaterError] = []

        async def take(some: Iterator[_Item]) -> None:
            with self._reader.slot() as slot:
                for item in some:
                    if failures:
                        return
                    try:
                        runs[item.row] = await self._run(slot, feature, item)
                    except HeadwaterError as error:
                        failures.append(error)

        for batch in batched(items, _CONCURRENT):
            await run_concurrently(batch, take, _CONCURRENT)
            if failures:
                raise failures[0]
            await asyncio.sleep(0)  # others may use the event loop
        return [runs[item.row] for item in items]

    async def _run(self, slot: Slot, feature: FeatureDef, item: _Item) -> _Run:
        transaction = MomentTransaction(self._loaded, item.at, known=self._known)
        transaction.has_provenance = self._has_provenance
        value: FeatureValue | None = None
        failure: HeadwaterError | None = None
        try:
            value = await self._reader.compute(slot, transaction, feature.name, item.entity_id)
        except HeadwaterError as error:
            failure = error
        problem = transaction.refusal or failure
        if problem is not None and not transaction.missing:
            raise _failed(feature.name, item, problem) from failure
        own, missing = (feature.entity.name, item.entity_id), transaction.missing
        inputs = {series: f for (series, id_), f in missing.items() if (f.entity.name, id_) == own}
        is_shared = len(inputs) == len(missing) and not transaction.is_observed
        return _Run(None if missing else value, missing, inputs, is_shared)

    async def _load_missing(self, runs: Iterable[tuple[_Item, _Run]]) -> None:
        """Load what runs need, for the moments of all of them."""
        missing: dict[str, _Missing] = {}
        for item, run in runs:
            for (series, entity_id), feature in run.missing.items():
                group = missing.setdefault(feature.entity.name, _Missing())
                group.features[series] = feature
                group.points[_EntityMoment(entity_id, item.at)] = None
        for group in missing.values():
            inputs, points = self._in_order(group.features.values()), self._new_file("parquet")
            await self._duck.in_thread(self._write_points, group.points, points)
            answers = await self._read(points, inputs)
            rows = await self._duck.in_thread(self._fetch, _ordered([points, *answers]))
            self._load(inputs, [row[1:] for row in rows])

    def _write_points(self, moments: Iterable[_EntityMoment], points: Path) -> None:
        rows = [{"row": number, **asdict(moment)} for number, moment in enumerate(moments)]
        self._duck.load_rows("moments", rows, _POINT_COLUMNS)
        self._duck.write("FROM moments", points)
        self._duck.run("DROP TABLE moments")

    def _fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self._duck.run(sql).fetchall()

    def _is_read_as_known(self, feature: FeatureDef) -> bool:
        return self._known or is_of_its_computation(feature)

    def _in_order(self, features: Iterable[FeatureDef]) -> list[FeatureDef]:
        """Return features in the order in which `_read` answers them."""
        return sorted(features, key=self._is_read_as_known)

    async def _read_inputs(self, points: Path, inputs: Iterable[FeatureDef]) -> None:
        """Read features at all rows, unless that is done."""
        unread = {f.series: f for f in inputs if f.series not in self._answers}
        for is_known, some in groupby(self._in_order(unread.values()), self._is_read_as_known):
            features, answer = list(some), self._new_file("parquet")
            await self._reads.read(points, ColumnReading(features, is_known, as_json=True), answer)
            self._answers |= {f.series: (answer, place) for place, f in enumerate(features)}

    async def _read(self, points: Path, inputs: Sequence[FeatureDef]) -> list[Path]:
        """Read inputs from history, as JSON text, which the reader decodes as it does online."""
        answers = []
        for is_known, some in groupby(inputs, self._is_read_as_known):
            answers.append(self._new_file("parquet"))
            reading = ColumnReading(list(some), is_known, as_json=True)
            await self._reads.read(points, reading, answers[-1])
        return answers

    def _to_parquet(self, columns: Sequence[_Column], answer: Path) -> None:
        selected, tables = "row", "points"
        for column in columns:
            n, kind = column.place, column.feature.codec.kind
            types = {"item": "BIGINT", "v": _TYPES.get(kind, "VARCHAR"), "a": "BIGINT"}
            self._duck.load(f"computed{n}", column.lines, types, longest=column.longest)
            value = f"CAST(c{n}.v AS TIMESTAMPTZ)" if kind == "time" else f"c{n}.v"
            selected += f", {value} AS v{n}, c{n}.a AS a{n}"
            tables += f" JOIN settled{n} AS s{n} USING (row) JOIN computed{n} AS c{n}"
            tables += f" ON c{n}.item = s{n}.item"
        self._duck.write(f"SELECT {selected} FROM {tables} ORDER BY row", answer)

    def _new_file(self, kind: str) -> Path:
        return self._folder / f"computed{next(self._numbers)}.{kind}"


def _ordered(files: Sequence[Path]) -> str:
    """Return the query of points and answers, in the order of their rows."""
    points, *answers = files
    joins = "".join(
        f" JOIN ({parquet([file])}) AS e{n} USING (row)" for n, file in enumerate(answers)
    )
    others = "".join(f", e{n}.* EXCLUDE row" for n in range(len(answers)))
    return f'SELECT row, entity_id, "at"{others} FROM ({parquet([points])}){joins} ORDER BY row'


def _failed(name: str, item: _Item, problem: HeadwaterError) -> HeadwaterError:
    at = from_micros(item.at).isoformat()
    if isinstance(problem, FeatureFailedError):
        return HeadwaterError(f"{problem} (at {at}); return None where a value is missing")
    return InvalidInputError(f"{name} of {item.entity_id!r} at {at}: {problem}")


class NotLoadedError(HeadwaterError):
    """A past value that has to be loaded before the function can run."""


class MomentTransaction(HandlerTransaction):
    """One computation at a moment of the past, from values that have been loaded.

    A read of any other value is listed in ``missing`` and ends the computation, which is repeated
    when that value has been loaded.
    """

    __slots__ = ("_at", "_known", "_values", "has_provenance", "is_observed", "missing", "refusal")

    is_past = True

    def __init__(self, values: LoadedValues, at: int, *, known: bool) -> None:
        super().__init__(_NOTHING, at, at, _NO_EVENT)
        self._values = values
        self._at = at
        self._known = known
        self.missing: dict[tuple[str, str], FeatureDef] = {}
        """The features to load, by series and entity id."""
        self.refusal: HeadwaterError | None = None
        """The first thing that the function did and that has no past, also if it was caught."""
        self.is_observed = False
        """Whether the result depends on the moment itself."""

    @property
    def known_at(self) -> datetime | None:
        """The moment, if the values are those that were served then."""
        return from_micros(self._at) if self._known else None

    def observe_moment(self) -> None:
        """Note that the function has asked for the time."""
        self.is_observed = True

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return a value that has been loaded; raise KeyError for any other one."""
        if not feature.lineage:
            return self._values[feature.series, key[1], self._at]
        chain = [series for series, _ in feature.chain]
        return last_cell(feature, {s: self._values[s, key[1], self._at] for s in chain})

    async def get(
        self, entity: str, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return the values of features at the moment."""
        read = [feature for feature in features if self._known or not feature.derived]
        cells = [self._cells((entity, entity_id), read) for entity_id in entity_ids]
        if self.missing:
            raise NotLoadedError("a past value is not loaded yet")
        return cells

    def _cells(self, key: EntityKey, features: Sequence[FeatureDef]) -> Cells:
        cells: Cells = {}
        for feature in features:
            try:
                cell = self.cell(key, feature)
            except KeyError:
                for series, _ in feature.chain:
                    self.missing[series, key[1]] = replace(feature, series=series)
            else:
                if cell is not None:
                    cells[feature.series] = cell
        return cells

    def is_computable(self, feature: FeatureDef) -> bool:
        """Return whether a value without a past is computed again, and not missing."""
        if feature.derived:
            return True
        if not feature.has_history:
            raise self._refused(
                f"it reads {feature.name!r}, which has no history because it is computed at every "
                "read; declare that one with derived=True or log=True"
            )
        return False

    def check_allowed(self, verb: str) -> None:
        """Raise an error for every verb that is not a read of features."""
        raise self._refused(
            f"its function calls {verb}, and a derived feature depends on nothing but the features "
            "that it reads; declare it with log=True instead of derived=True"
        )

    async def add_to_history(self, change: Change) -> None:
        """Do nothing: a value of the past that is computed now was never served."""

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Refuse a write."""
        self.check_allowed("set_feature")

    def stage_document(self, write: DocumentWrite) -> None:
        """Refuse a write."""
        self.check_allowed("index")

    def _refused(self, problem: str) -> HeadwaterError:
        error = InvalidInputError(problem)
        self.refusal = self.refusal or error
        return error


_NO_EVENT = Delivery("0", ServiceEvent(f"{INTERNAL}moment", "none"))
_NOTHING = BatchState()
