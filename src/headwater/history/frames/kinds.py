"""Recognise the kind of a frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import duckdb

from headwater.errors import InvalidInputError
from headwater.history.frames.arrow import ArrowFrame, ArrowStream
from headwater.history.frames.dicts import DictFrame
from headwater.history.frames.entity_frame import EntityFrame
from headwater.history.frames.files import SUFFIXES, FileFrame
from headwater.history.frames.pandas import PandasFrame
from headwater.history.frames.polars import PolarsFrame, PolarsLazyFrame
from headwater.history.frames.relation import RelationFrame

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
        return RelationFrame(_stored(frame))
    raise InvalidInputError(
        f"a frame cannot be of type {type(frame).__qualname__}; pass a pandas, Polars or Arrow "
        "table, a DuckDB relation, the path of a Parquet file, a query or a list of dicts"
    )


def _stored(stream: _ArrowExporter) -> duckdb.DuckDBPyRelation:
    """Return a relation with the rows of a stream, which may be readable only once."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("stream", ArrowStream(stream))
    connection.execute("CREATE TABLE frame AS SELECT * FROM stream")
    return connection.table("frame")
