"""Import of feature tables from files: rows with an id, a time, and values of features."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec
from duckdb.sqltypes import DuckDBPyType
from msgspec.structs import replace

from headwater.core.clock import Clock, from_micros, to_micros
from headwater.core.codec import Codec
from headwater.core.duckdb_session import Session, headline, identifier, scalar, session
from headwater.core.exact_columns import BLOBS, exact, is_inexact
from headwater.core.session_memory import session_memory
from headwater.core.source_views import write_query
from headwater.core.sql_literals import text
from headwater.declarations.features import FeatureDef
from headwater.declarations.window_options import contribution_fields
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.errors.hints import nearest
from headwater.features.cells import make_cell, make_change
from headwater.features.window_states import WindowStates
from headwater.history.columns import JSON, column_type, is_of_its_computation
from headwater.history.frames.entity_frame import Spine, TimeRemedies
from headwater.history.frames.files import CSV, rows_of, typed_rows
from headwater.history.past_reads import without_erased
from headwater.history.points import check_rows
from headwater.model.history import ImportReport
from headwater.model.payload_schemas import BASE64
from headwater.model.problems import OnStep
from headwater.ports import Backends, Change

_TIMES = ("event_timestamp", "timestamp")
_WRITTEN = ("created", "created_timestamp")
_VALUE = "value"
_CHANGES_AT_ONCE = 100_000
_ENTITIES_AT_ONCE = 1_000
_BYTES_AT_ONCE = 64 << 20
_VECTOR_ROWS = 2048
_COPIES = 4  # of a vector, in DuckDB and here
_MAX_SHOWN = 3
_MAX_TEXT = 40
_AWARE = "TIMESTAMP WITH TIME ZONE"
_JSON_TEXT = "CAST(to_json({}) AS VARCHAR)"
_NAIVE = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE")

# The texts of CSV that are numbers, truth values and times, and the JSON of each.
_LITERALS = {
    "BIGINT": [
        (
            r"regexp_full_match({0}, '[+-]?[0-9]+(\.0*)?')",
            "CAST(CAST(split_part({0}, '.', 1) AS HUGEINT) AS VARCHAR)",
        ),
        ("isnan(TRY_CAST({0} AS DOUBLE))", "NULL"),
    ],
    "DOUBLE": [
        (r"regexp_full_match({0}, '-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?')", "{0}"),
        ("isnan(TRY_CAST({0} AS DOUBLE))", "NULL"),
        (
            "isfinite(TRY_CAST({0} AS DOUBLE))",
            "CAST(to_json(TRY_CAST({0} AS DOUBLE)) AS VARCHAR)",
        ),
    ],
    "BOOLEAN": [
        ("TRY_CAST({0} AS BOOLEAN) IS NOT NULL", "CAST(TRY_CAST({0} AS BOOLEAN) AS VARCHAR)")
    ],
    "TIMESTAMPTZ": [
        (
            "regexp_matches({0}, '([zZ]|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$')"
            " AND TRY_CAST({0} AS TIMESTAMPTZ) IS NOT NULL",
            "strftime(CAST(TRY_CAST({0} AS TIMESTAMPTZ) AS TIMESTAMP),"
            " '\"%Y-%m-%dT%H:%M:%S.%fZ\"')",
        )
    ],
}

IMPORT = "import"
"""The cause of imported values; with a colon and their write time, if the file has one."""

_REMEDIES = TimeRemedies(
    naive="pass time_zone=",
    other="name the column with the times as at=",
    epoch="write them as times, such as 2026-01-31T12:00:00Z",
)


class ImportColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a file; the usual names are looked for where none is given.

    Times without a time zone are of ``time_zone``; if it is None, they are refused.
    """

    id: str | None = None
    value: str | None = None
    at: str | None = None
    written: str | None = None
    time_zone: str | None = None


class _Chosen(msgspec.Struct, frozen=True):
    """The columns of one file that an import reads."""

    id: str
    at: str
    written: str | None
    values: Mapping[str, Codec]
    is_object: bool = False
    """Whether the columns are the fields of contributions, and not the values of features."""


async def import_file(
    file: Path,
    features: Sequence[FeatureDef],
    columns: ImportColumns,
    backends: Backends,
    *,
    clock: Clock,
    latest: datetime,
    progress: OnStep | None = None,
) -> ImportReport:
    """Append the values of a file to history, in large batches; values that it has stay as is.

    A value without a write time is written now. Times after ``latest`` are refused. Values of
    erased entities are left out. The values of a family are contributions, with which its windows
    are made again.
    """
    _check_alone(features)
    now, ties = clock.micros(), None if features[0].windows is None else _Ties()
    values = added = missing = erased = done = states = 0
    with TemporaryDirectory(prefix="headwater-") as folder, session(Path(folder)) as duck:
        try:
            total = await duck.in_thread(_open, duck, file, features, columns, latest)
            at_once = await duck.in_thread(_rows_at_once, duck, len(features))
        except duckdb.Error as error:
            raise InvalidInputError(f"{file} cannot be read: {headline(error)}") from error
        if progress is not None:
            progress(0, total)
        cursor = await duck.in_thread(duck.run, "SELECT * FROM import")
        while rows := await duck.in_thread(cursor.fetchmany, at_once):
            try:
                changes = await asyncio.to_thread(_changes, rows, features, now, ties)
            except FeatureValueError:
                if added and features[0].windows is not None:
                    # The contributions of before stay in history, so they have to count.
                    await _fold(duck, features[0], backends, clock)
                raise
            admitted = await without_erased(backends, changes)
            added += await backends.offline.append(admitted)
            erased += len(changes) - len(admitted)
            done, values = done + len(rows), values + len(changes)
            missing += len(rows) * len(features) - len(changes)
            if progress is not None:
                progress(done, total)
        if features[0].windows is not None:
            states = await _fold(duck, features[0], backends, clock)
    return ImportReport(total, values, added, missing, erased, states)


@asynccontextmanager
async def queried_file(sql: str, location: str) -> AsyncIterator[Path]:
    """Yield a Parquet file with the rows of a query that a server or a database file runs."""
    with TemporaryDirectory(prefix="headwater-") as folder, session(Path(folder)) as duck:
        file = Path(folder, "rows.parquet")
        await duck.in_thread(write_query, duck, location, sql, file)
        yield file


def _check_alone(features: Sequence[FeatureDef]) -> None:
    """Raise InvalidInputError unless the values of one family, or of other features, are given."""
    for feature in features:
        if feature.window is not None:
            raise InvalidInputError(
                f"feature {feature.name!r} is computed from the contributions of "
                f"{feature.window.family!r}; import those into {feature.window.family!r}"
            )
        if feature.windows is not None and len(features) > 1:
            raise InvalidInputError(
                f"the contributions of {feature.name!r} cannot be imported together with other "
                "features, because equal rows of them count several times; import them alone"
            )


async def _fold(duck: Session, family: FeatureDef, backends: Backends, clock: Clock) -> int:
    """Make the windows of the entities of a file again; return how many states were written.

    Those of a repeated import as well: the earlier one may have been interrupted before this.
    """
    windows, count = WindowStates(backends), 0
    cursor = await duck.in_thread(duck.run, "SELECT DISTINCT entity_id FROM import ORDER BY 1")
    while page := await duck.in_thread(cursor.fetchmany, _ENTITIES_AT_ONCE):
        count += await windows.rebuild(family, [entity_id for (entity_id,) in page], clock)
    return count


def _open(
    duck: Session,
    file: Path,
    features: Sequence[FeatureDef],
    columns: ImportColumns,
    latest: datetime,
) -> int:
    """Check the rows of a file and create the view ``import``; return the number of rows."""
    if columns.time_zone is not None:
        zones = [zone for (zone,) in duck.run("SELECT name FROM pg_timezone_names()").fetchall()]
        if columns.time_zone not in zones:
            raise InvalidInputError(
                f"unknown time zone {columns.time_zone!r}; {nearest(columns.time_zone, zones)}"
            )
    given = duck.connection.sql(f"SELECT * FROM {rows_of(file)}").columns
    chosen = _choose(given, features, columns)
    written = chosen.written
    typed = {name for name in (chosen.at, written) if name is not None}
    if features[0].entity.id_type is int:
        typed.add(chosen.id)
    rows = typed_rows(file, given, typed)
    source = duck.connection.sql(f"SELECT * FROM {rows}")
    kinds = dict(zip(source.columns, source.types, strict=True))
    types = {name: str(kind) for name, kind in kinds.items()}
    as_json = _text_as_json if file.suffix == CSV else _as_json
    values = {
        name: as_json(identifier(name), kinds[name], codec) for name, codec in chosen.values.items()
    }
    if chosen.is_object and file.suffix == CSV:
        values |= {
            name: _any_as_json(identifier(name))
            for name, codec in chosen.values.items()
            if codec.annotation is Any
        }
    placed = [_object(values)] if chosen.is_object else values.values()
    selected = [
        f"{identifier(chosen.id)} AS id0",
        f"{_moment(chosen.at, types, columns)} AS moment",
        f"{_moment(written, types, columns) if written else 'NULL::TIMESTAMPTZ'} AS written",
        *(f"{value} AS v{number}" for number, value in enumerate(placed)),
    ]
    duck.run(
        f"CREATE VIEW frame AS SELECT row_number() OVER () - 1 AS row, {', '.join(selected)}"
        f" FROM {rows}"
    )
    entity = msgspec.structs.replace(features[0].entity, id_field=chosen.id)
    count = check_rows(duck, Spine([entity], chosen.at, latest=latest), _REMEDIES)
    if written is not None:
        _check_written(duck, written, latest)
    places = ", ".join(f"v{number}" for number in range(len(features)))
    order = "ORDER BY entity_id, moment, written, row" if features[0].windows is not None else ""
    duck.run(
        "CREATE VIEW import AS SELECT row, CAST(id0 AS VARCHAR) AS entity_id, epoch_us(moment),"
        f" epoch_us(CAST(written AS TIMESTAMPTZ)), {places} FROM frame {order}"
    )
    return count


def _check_written(duck: Session, column: str, latest: datetime) -> None:
    """Raise InvalidInputError if a value is written in the future.

    What events contribute to a family is written after all that it has, so it would be, too.
    """
    first = duck.run(
        "SELECT row, epoch_us(CAST(written AS TIMESTAMPTZ)) FROM frame"
        f" WHERE epoch_us(CAST(written AS TIMESTAMPTZ)) > {to_micros(latest)} ORDER BY row LIMIT 1"
    ).fetchone()
    if first is not None:
        row, moment = first
        raise InvalidInputError(
            f"row {row}: {from_micros(moment).isoformat()} in column {column!r} is in the future, "
            "and no value can have been written then; correct such rows, or leave them out"
        )


def _object(fields: Mapping[str, str]) -> str:
    """Return the SQL of an object as JSON text; NULL if all of its fields are."""
    pairs = (
        f"{text(f'{msgspec.json.encode(name).decode()}:')} || coalesce({value}, 'null')"
        for name, value in fields.items()
    )
    some = f"coalesce({', '.join(fields.values())}) IS NOT NULL"
    return f"CASE WHEN {some} THEN '{{' || concat_ws(',', {', '.join(pairs)}) || '}}' END"


def _rows_at_once(duck: Session, features: int) -> int:
    """Return how many rows are read together; raise InvalidInputError if one vector is too large.

    A value that repeats takes almost no space in a file, and its whole size in each row here.
    DuckDB does not count what it hands over to the memory of its session.
    """
    size = " + ".join(f"coalesce(strlen(v{number}), 0)" for number in range(features))
    largest = scalar(
        duck.run(
            f"SELECT coalesce(max(bytes), 0) FROM (SELECT sum({size}) AS bytes FROM frame"
            f" GROUP BY row // {_VECTOR_ROWS})"
        )
    )
    limit = session_memory() // _COPIES
    if largest > limit:
        raise InvalidInputError(
            f"{_VECTOR_ROWS} rows of the file have values of {largest} bytes, and at most {limit} "
            "are read at once; write shorter values, or raise offline.max_session_bytes"
        )
    most = max(1, _VECTOR_ROWS * _BYTES_AT_ONCE // max(1, int(largest)))
    return max(1, min(_CHANGES_AT_ONCE // features, most))


def _choose(
    given: Sequence[str], features: Sequence[FeatureDef], columns: ImportColumns
) -> _Chosen:
    if columns.value is not None and len(features) > 1:
        raise InvalidInputError("value= names the column of one feature; import one at a time")
    written = _find("write times", columns.written, _WRITTEN, given, "written")
    entity_id = _need("ids", columns.id, (features[0].entity.id_field,), given, "id")
    at = _need("times", columns.at, _TIMES, given, "at")
    if columns.value is None and len(features) == 1 and features[0].name not in given:
        others = [name for name in given if name not in (entity_id, at, written)]
        if fields := _field_columns(features[0], others):
            return _Chosen(entity_id, at, written, fields, is_object=True)
    return _Chosen(
        entity_id,
        at,
        written,
        {
            _need(
                f"values of {feature.name}",
                columns.value,
                (feature.name, _VALUE) if len(features) == 1 else (feature.name,),
                given,
                "value",
            ): feature.codec
            for feature in features
        },
    )


def _field_columns(feature: FeatureDef, given: Sequence[str]) -> dict[str, Codec]:
    """Return the columns that are fields of a family's contributions; none if it has no fields.

    Fields that are not declared are all columns that are not needed otherwise.
    """
    fields = None if feature.windows is None else contribution_fields(feature.codec.annotation)
    if fields is None or (_VALUE in given and _VALUE not in fields):
        return {}
    undeclared = fields.get("")
    kinds = {
        name: undeclared if undeclared is not None else fields[name]
        for name in given
        if undeclared is not None or name in fields
    }
    return {name: Codec(f"{feature.name}.{name}", kind) for name, kind in kinds.items()}


def _need(
    content: str, name: str | None, usual: Sequence[str], given: Sequence[str], option: str
) -> str:
    chosen = _find(content, name, usual, given, option)
    if chosen is None:
        raise InvalidInputError(
            f"the file has no column {' or '.join(map(repr, usual))} with the {content}; "
            f"{nearest(usual[0], given, f'Pass its name as {option}=.')}"
        )
    return chosen


def _find(
    content: str, name: str | None, usual: Sequence[str], given: Sequence[str], option: str
) -> str | None:
    if name is not None and name not in given:
        raise InvalidInputError(
            f"the file has no column {name!r} with the {content} ({option}=); "
            f"{nearest(name, given)}"
        )
    return name or next((usual_name for usual_name in usual if usual_name in given), None)


def _moment(name: str, types: Mapping[str, str], columns: ImportColumns) -> str:
    column = identifier(name)
    if types[name] not in _NAIVE:
        return column
    if columns.time_zone is None:
        raise InvalidInputError(
            f"the times in column {name!r} have no time zone; pass theirs, such as time_zone='UTC'"
        )
    return f"CAST({column} AS TIMESTAMP) AT TIME ZONE {text(columns.time_zone)}"


def _text_as_json(column: str, _: DuckDBPyType, codec: Codec) -> str:
    """Return the SQL of a text of CSV as the JSON text of a value; NULL for NaN.

    A text that does not look like the feature's type becomes a JSON text, which is refused.
    """
    kind, quoted = column_type(codec), _JSON_TEXT.format(column)
    if kind == JSON or kind.endswith("[]"):
        return column
    if kind not in _LITERALS:
        return quoted
    cases = (
        f"WHEN {condition.format(column)} THEN {value.format(column)}"
        for condition, value in _LITERALS[kind]
    )
    return f"CASE {' '.join(cases)} ELSE {quoted} END"


def _any_as_json(column: str) -> str:
    """Return the SQL of a text of CSV that is a field of any type: JSON, or else a text."""
    return f"CASE WHEN json_valid({column}) THEN {column} ELSE {_JSON_TEXT.format(column)} END"


def _as_json(column: str, type_: DuckDBPyType, codec: Codec) -> str:
    """Return the SQL of a value as JSON text, which the feature's type decodes; NULL for NaN."""
    kind = str(type_)
    if is_inexact(type_, BLOBS) and _has_bytes(codec):
        return _JSON_TEXT.format(exact(column, type_, BLOBS))
    if kind == "VARCHAR" and column_type(codec) == JSON:
        return column
    if kind == _AWARE:
        return f"strftime(CAST({column} AS TIMESTAMP), '\"%Y-%m-%dT%H:%M:%S.%fZ\"')"
    if kind.startswith("DECIMAL"):
        number = f"CAST({column} AS VARCHAR)"  # as it is, and not through a float
        return _JSON_TEXT.format(number) if column_type(codec) == "VARCHAR" else number
    number = _JSON_TEXT.format(column)
    if kind not in ("FLOAT", "DOUBLE"):
        return number
    if codec.kind == "int":
        # Tables without a nullable integer type hold such columns as floats.
        whole = f"CAST(CAST({column} AS BIGINT) AS VARCHAR)"
        number = f"CASE WHEN {column} = floor({column}) THEN {whole} ELSE {number} END"
    return f"CASE WHEN NOT isnan({column}) THEN {number} END"


def _has_bytes(codec: Codec) -> bool:
    """Return whether a type has bytes, whose JSON text is base64."""
    schema = msgspec.json.schema(codec.annotation, schema_hook=lambda _: {})
    return f'"{BASE64}"'.encode() in msgspec.json.encode(schema)


class _Ties:
    """Tells the contributions of one entity and moment apart, which follow each other in a file.

    The order of the rows is that of their writes. Equal rows are several contributions, and each
    has a cause of its own: so all are kept, and importing them twice changes nothing.
    """

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()
        self._equal: Counter[bytes] = Counter()

    def next(self, change: Change) -> Change:
        cell = change.cell
        current = (change.entity_id, cell.as_of, cell.written_at)
        if current != self._last:
            self._last = current
            self._equal.clear()
        written_at = cell.written_at + self._equal.total()
        self._equal[bytes(cell.value)] += 1
        count = self._equal[bytes(cell.value)]
        return replace(
            change,
            cell=replace(cell, written_at=written_at),
            cause=change.cause if count == 1 else f"{change.cause}#{count}",
        )


def _changes(
    rows: Sequence[tuple[Any, ...]],
    features: Sequence[FeatureDef],
    now: int,
    ties: _Ties | None = None,
) -> list[Change]:
    """Return the changes of some rows; raise FeatureValueError if values do not fit."""
    changes, problems = [], []
    for row, entity_id, as_of, written, *values in rows:
        # With write times, rows that differ in nothing else are not the same.
        cause = IMPORT if written is None else f"{IMPORT}:{written}"
        for feature, value in zip(features, values, strict=True):
            if value is None and not feature.codec.is_optional:
                continue
            try:
                decoded = None if value is None else feature.codec.decode(value.encode())
                at = written or (as_of if is_of_its_computation(feature) else now)
                cell = make_cell(feature, decoded, as_of, at)
            except (FeatureValueError, msgspec.DecodeError):
                problems.append((feature, row, value))
                continue
            change = make_change(feature, entity_id, cell, cause, online=False, begins=False)
            changes.append(change if ties is None else ties.next(change))
    if not problems:
        return changes
    feature = problems[0][0]
    misfits = [(row, value) for other, row, value in problems if other is feature]
    shown = ", ".join(f"row {row}: {value[:_MAX_TEXT]}" for row, value in misfits[:_MAX_SHOWN])
    more = f" and {len(misfits) - _MAX_SHOWN} more" if len(misfits) > _MAX_SHOWN else ""
    raise FeatureValueError(
        feature.name,
        f"has the type {feature.codec.expected}, which values of the file do not fit ({shown}"
        f"{more}); correct them and import the file again: rows that are in history are left out",
    )
