"""Polars data frames; Polars itself is never imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.core.duckdb_session import Session
from headwater.history.frames.arrow import ArrowStream
from headwater.history.frames.entity_frame import FrameResult, Spine, TimeRemedies


class PolarsFrame:
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

    def discard(self) -> None:
        pass

    def load(self, duck: Session, spine: Spine) -> None:
        given = [self._series(name).alias(column) for column, name in spine.columns.items()]
        duck.connection.register("given", ArrowStream(type(self._frame)(given)))
        duck.run("CREATE TABLE frame AS SELECT row_number() OVER () - 1 AS row, * FROM given")

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
