"""Callers' tables of every kind; pandas, Polars and pyarrow are never imported here."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import duckdb
import numpy as np

from headwater.core.clock import to_micros
from headwater.core.duckdb_session import Session, parquet
from headwater.core.sql_literals import text
from headwater.core.sql_sources import place_of
from headwater.declarations.features import EntityDef
from headwater.errors import InvalidInputError
from headwater.history.frames.entity_frame import EntityFrame, FrameResult, Spine, TimeRemedies
from headwater.history.frames.files import SUFFIXES, FileFrame
from headwater.ports import Rows

_ROWS = 10_000
_NUMBERED = "CREATE TABLE frame AS SELECT row_number() OVER () - 1 AS row, {} FROM given"
# DuckDB rounds nanoseconds before 1970 up.
_FLOOR = "make_timestamptz(CASE WHEN {0} < 0 THEN ({0} - 999) // 1000 ELSE {0} // 1000 END)"
_TYPES = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DOUBLE",
    str: "VARCHAR",
    datetime: "TIMESTAMP",
    date: "DATE",
    list: "JSON",
    tuple: "JSON",
    dict: "JSON",
}


class DictFrame(EntityFrame):
    """A list of dicts; the result has copies of them, with values in their annotated types."""

    remedies = TimeRemedies(
        naive="pass aware datetimes", other="pass datetimes", epoch="pass datetimes"
    )
    has_columns = False

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InvalidInputError(
                    f"row {number} of the frame must be a dict, not {type(row).__name__}"
                )
        self._rows = rows

    def columns(self) -> Sequence[str]:
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def load(self, duck: Session, spine: Spine) -> None:
        columns: dict[str, list[Any]] = {
            f"id{number}": _text_ids(entity, self._values(entity.id_field))
            for number, entity in enumerate(spine.entities)
        }
        columns["micros"] = _micros_of(spine.at, self._values(spine.at))
        types = dict.fromkeys(columns, "VARCHAR") | {"row": "BIGINT", "micros": "BIGINT"}
        rows = zip(range(len(self._rows)), *columns.values(), strict=True)
        names = ("row", *columns)
        duck.load_rows("given", [dict(zip(names, row, strict=True)) for row in rows], types)
        duck.run(
            "CREATE VIEW frame AS SELECT * EXCLUDE micros, make_timestamptz(micros) AS moment"
            " FROM given"
        )

    def _values(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]

    def attach(self, duck: Session, result: FrameResult) -> list[dict[str, Any]]:
        cursor = duck.run(result.plain_query)
        names = [column.name for column in result.columns]
        converters = [column.to_python for column in result.columns]
        rows = iter(self._rows)
        attached = []
        while page := cursor.fetchmany(_ROWS):
            for values in page:
                converted = (
                    value if convert is None else convert(value)
                    for value, convert in zip(values, converters, strict=True)
                )
                attached.append({**next(rows), **dict(zip(names, converted, strict=True))})
        return attached


class PandasFrame(EntityFrame):
    """A pandas data frame; the result has its index and its columns exactly as they are."""

    remedies = TimeRemedies(
        naive='df["{0}"].dt.tz_localize("UTC") adds one',
        other='pd.to_datetime(df["{0}"], utc=True) converts them',
        epoch='pd.to_datetime(df["{0}"], unit="s", utc=True) converts them',
        absent="df.reset_index() turns an index into a column",
    )

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def columns(self) -> Sequence[str]:
        return list(self._frame.columns)

    def load(self, duck: Session, spine: Spine) -> None:
        given = {f"id{number}": self._ids(entity) for number, entity in enumerate(spine.entities)}
        given["moment"] = self._times(spine.at)
        duck.connection.register("given", self._new(given))
        duck.run(_NUMBERED.format("*"))

    def _ids(self, entity: EntityDef) -> Any:
        ids = self._frame[entity.id_field]
        if ids.dtype == object:
            return np.array(_text_ids(entity, ids.tolist()), dtype=object)
        return ids.array

    def _times(self, name: str) -> Any:
        times = self._frame[name]
        if times.dtype == object:
            return self._utc(np.array(_micros_of(name, times.tolist()), dtype="datetime64[us]"))
        # DuckDB rounds nanoseconds before 1970 up.
        is_nanos = str(times.dtype).startswith(("datetime64[ns,", "timestamp[ns,"))
        return (times.dt.as_unit("us") if is_nanos else times).array

    def attach(self, duck: Session, result: FrameResult) -> Any:
        arrays = duck.run(result.query).fetchnumpy()
        added = {
            column.name: self._added(arrays[f"c{number}"], column.type)
            for number, column in enumerate(result.columns)
        }
        return self._frame.assign(**added)

    def _added(self, answer: Any, kind: str) -> Any:
        values, is_missing = np.ma.getdata(answer), np.ma.getmaskarray(answer)
        if kind in ("BIGINT", "BOOLEAN"):
            nullable = "Int64" if kind == "BIGINT" else "boolean"
            return self._series(values).astype(nullable).mask(is_missing).array
        if kind == "TIMESTAMPTZ":
            return self._utc(np.where(is_missing, np.datetime64("NaT", "us"), values))
        if kind in ("DOUBLE", "DATE"):
            return np.where(is_missing, np.datetime64("NaT") if kind == "DATE" else np.nan, values)
        if kind.endswith("[]"):
            lists = np.empty(len(values), dtype=object)
            lists[:] = [
                None if gone else v.tolist() for v, gone in zip(values, is_missing, strict=True)
            ]
            return lists
        texts = np.where(is_missing, np.array(None), values)
        # The type that pandas gives to a column of texts, also if all of them are missing.
        return self._series(texts).astype(self._series(["text"]).dtype).array

    def _utc(self, times: Any) -> Any:
        return self._series(times).dt.tz_localize("UTC").array

    def _series(self, values: Any) -> Any:
        return self._new({"values": values})["values"]

    def _new(self, columns: dict[str, Any]) -> Any:
        # The class of pandas itself, because the caller's may be derived from it.
        mro = type(self._frame).__mro__
        return next(cls for cls in mro if cls.__name__ == "DataFrame")(columns)


class ArrowStream:
    """Only the Arrow stream of a table, which DuckDB reads without pyarrow."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrowFrame(EntityFrame):
    """A pyarrow table; the result has its columns exactly as they are."""

    remedies = TimeRemedies(
        naive='pyarrow.compute.assume_timezone(table["{0}"], "UTC") adds one',
        other='table["{0}"].cast(pyarrow.timestamp("us", "UTC")) converts texts',
        epoch='table["{0}"].cast("int64").cast(pyarrow.timestamp("s", "UTC")) converts them',
    )

    def __init__(self, table: Any) -> None:
        self._table = table

    def columns(self) -> Sequence[str]:
        return list(self._table.column_names)

    def load(self, duck: Session, spine: Spine) -> None:
        names = list(spine.columns.values())
        given = self._table.select(names).rename_columns(list(spine.columns))
        moment = "moment"
        if str(given.schema.field("moment").type).startswith("timestamp[ns, tz="):
            nanos = given["moment"].combine_chunks().view("int64")
            given = given.set_column(len(names) - 1, "moment", nanos)
            moment = f"{_FLOOR.format('moment')} AS moment"
        duck.connection.register("given", ArrowStream(given))
        duck.run(_NUMBERED.format(f"* EXCLUDE moment, {moment}"))

    def attach(self, duck: Session, result: FrameResult) -> Any:
        answer = duck.connection.sql(result.query).to_arrow_table()
        table = self._table
        for column, values in zip(result.columns, answer.columns, strict=True):
            table = table.append_column(column.name, values)
        return table


class PolarsFrame(EntityFrame):
    """A Polars data frame; the result has its columns exactly as they are."""

    remedies = TimeRemedies(
        naive='pl.col("{0}").dt.replace_time_zone("UTC") adds one',
        other='pl.col("{0}").str.to_datetime(time_zone="UTC") converts texts',
        epoch='pl.from_epoch("{0}").dt.replace_time_zone("UTC") converts them',
    )

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def columns(self) -> Sequence[str]:
        return list(self._frame.columns)

    def load(self, duck: Session, spine: Spine) -> None:
        given = [self._series(name).alias(column) for column, name in spine.columns.items()]
        duck.connection.register("given", ArrowStream(type(self._frame)(given)))
        duck.run(_NUMBERED.format("*"))

    def _series(self, name: str) -> Any:
        series = self._frame[name]
        # DuckDB rounds nanoseconds before 1970 up.
        is_nanos = str(series.dtype).startswith("Datetime(time_unit='ns'")
        return series.dt.cast_time_unit("us") if is_nanos else series

    def attach(self, duck: Session, result: FrameResult) -> Any:
        columns = type(self._frame)(duck.connection.sql(result.query)).get_columns()
        names = (column.name for column in result.columns)
        return self._frame.hstack([s.alias(name) for s, name in zip(columns, names, strict=True)])


class PolarsLazyFrame(PolarsFrame):
    """A lazy frame of Polars, which is collected and becomes lazy again."""

    def __init__(self, frame: Any) -> None:
        super().__init__(frame.collect())

    def attach(self, duck: Session, result: FrameResult) -> Any:
        return super().attach(duck, result).lazy()


class RelationFrame(EntityFrame):
    """A relation of DuckDB; the result is one of the same connection.

    Its rows are stored once in a temporary table of that connection, because a relation may give
    them in another order each time.
    """

    remedies = TimeRemedies(
        naive="select {0} AT TIME ZONE 'UTC' AS {0}",
        other="select CAST({0} AS TIMESTAMPTZ) AS {0}",
        epoch="select to_timestamp({0}) AS {0}",
    )

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        self._relation = relation
        own = uuid4().hex
        self._view, self._stored, self._result = (
            f"headwater_{part}_{own}" for part in ("view", "stored", "result")
        )

    def columns(self) -> Sequence[str]:
        return list(self._relation.columns)

    def load(self, duck: Session, spine: Spine) -> None:
        file = duck.folder.parent / "frame.parquet"
        self._run(
            f"CREATE TEMP TABLE {self._stored} AS"
            f" SELECT *, row_number() OVER () - 1 AS {self._view} FROM {self._view}"
        )
        self._run(
            f"COPY (SELECT {self._view} AS row, {spine.selected} FROM {self._stored})"
            f" TO {text(file)} (FORMAT parquet)"
        )
        duck.run(f"CREATE VIEW frame AS {parquet([file])}")

    def attach(self, duck: Session, result: FrameResult) -> Any:
        file = duck.folder / "result.parquet"
        duck.write(result.query, file)
        self._run(
            f"CREATE TEMP TABLE {self._result} AS"
            f" SELECT given.* EXCLUDE {self._view}, {result.named}"
            f" FROM (SELECT * FROM {self._stored} ORDER BY {self._view}) AS given"
            f" POSITIONAL JOIN ({parquet([file])}) AS result"
        )
        attached = self._run(f"SELECT * FROM {self._result}")
        self.discard()
        return attached

    def discard(self) -> None:
        self._run(f"DROP TABLE IF EXISTS {self._stored}")
        self._run(f"DROP VIEW {self._view}")

    def _run(self, sql: str) -> Any:
        return self._relation.query(self._view, sql)


_LIBRARIES: dict[tuple[str, str], Callable[[Any], EntityFrame]] = {
    ("pandas", "DataFrame"): PandasFrame,
    ("polars", "DataFrame"): PolarsFrame,
    ("polars", "LazyFrame"): PolarsLazyFrame,
    ("pyarrow", "Table"): ArrowFrame,
}


@runtime_checkable
class _ArrowExporter(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


def is_sql(frame: object) -> bool:
    """Return whether a frame is a query, and not the path of a file."""
    return isinstance(frame, str) and not frame.endswith(SUFFIXES)


def open_frame(frame: object, output: Path | None) -> EntityFrame:
    """Return the frame of a caller's table; raise InvalidInputError if its kind is unknown."""
    if isinstance(frame, str | Path):
        return FileFrame(Path(frame), output)
    if output is not None:
        raise InvalidInputError("output= is for frames in files; the result is returned otherwise")
    if isinstance(frame, list | tuple):
        return DictFrame(frame)
    if isinstance(frame, duckdb.DuckDBPyRelation):
        return RelationFrame(frame)
    for kind in type(frame).__mro__:
        opener = _LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if opener is not None:
            return opener(frame)
    if isinstance(frame, _ArrowExporter):
        # A stream may be readable only once, so its rows are stored.
        connection = _in_memory()
        connection.register("stream", ArrowStream(frame))
        connection.execute("CREATE TABLE frame AS SELECT * FROM stream")
        return RelationFrame(connection.table("frame"))
    raise InvalidInputError(
        f"a frame cannot be of type {type(frame).__qualname__}; pass a pandas, Polars or Arrow "
        "table, a DuckDB relation, the path of a Parquet file, a query or a list of dicts"
    )


def relation_of(rows: Rows, needed: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """Return a relation of a new connection with the rows that a query returned.

    The columns that are needed have these names, also if they differ in case.
    """
    places = {place_of(name, rows.columns): name for name in needed}
    columns = [places.get(place, name) for place, name in enumerate(rows.columns)]
    types = {name: _type([row[place] for row in rows.rows]) for place, name in enumerate(columns)}
    connection = _in_memory()
    with TemporaryDirectory(prefix="headwater-") as folder:
        duck = Session(connection, Path(folder))
        duck.load_rows("query", [dict(zip(columns, row, strict=True)) for row in rows.rows], types)
    return connection.table("query")


def _in_memory() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _type(values: Sequence[Any]) -> str:
    """Return the type of a column by the Python types of its values."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, datetime) and value.tzinfo for value in present):
        return "TIMESTAMPTZ"
    types = {_TYPES.get(type(value), "VARCHAR") for value in present}
    if types == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return types.pop() if len(types) == 1 else "VARCHAR"


def _text_ids(entity: EntityDef, values: Sequence[Any]) -> list[str]:
    """Return ids as they are stored; raise InvalidInputError with the row of an invalid one."""
    ids = []
    for row, value in enumerate(values):
        try:
            ids.append(entity.text_id(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"row {row}: {error}") from error
    return ids


def _micros_of(name: str, values: Sequence[Any]) -> list[int]:
    """Return times as microseconds; raise InvalidInputError for one without a time zone."""
    return [_micros(name, row, value) for row, value in enumerate(values)]


def _micros(name: str, row: int, value: Any) -> int:
    if value is None or value != value:  # NaN, and NaT of pandas
        raise InvalidInputError(
            f"row {row} has no time in {name}; fill it in, or leave such rows out"
        )
    if isinstance(value, int | float):
        raise InvalidInputError(
            f"row {row}: {name} must be a datetime with a time zone, not the number {value}; "
            "datetime.fromtimestamp(seconds, UTC) converts seconds since 1970"
        )
    if not isinstance(value, datetime):
        raise InvalidInputError(
            f"row {row}: {name} must be a datetime with a time zone, not "
            f"{reprlib.repr(value)}; parse texts with datetime.fromisoformat"
        )
    if value.tzinfo is None:
        raise InvalidInputError(
            f"row {row}: {name} {value.isoformat()} has no time zone; pass an aware datetime, for "
            "example with .replace(tzinfo=UTC)"
        )
    return to_micros(value)
