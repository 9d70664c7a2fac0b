"""pandas data frames; pandas itself is never imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwater.core.duckdb_session import Session
from headwater.declarations.features import EntityDef
from headwater.history.frames.entity_frame import FrameResult, Spine, TimeRemedies
from headwater.history.frames.python_values import micros_of, text_ids


class PandasFrame:
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

    def discard(self) -> None:
        pass

    def load(self, duck: Session, spine: Spine) -> None:
        given = {f"id{number}": self._ids(entity) for number, entity in enumerate(spine.entities)}
        given["moment"] = self._times(spine.at)
        duck.connection.register("given", self._new(given))
        duck.run("CREATE TABLE frame AS SELECT row_number() OVER () - 1 AS row, * FROM given")

    def _ids(self, entity: EntityDef) -> Any:
        ids = self._frame[entity.id_field]
        if ids.dtype == object:
            return np.array(text_ids(entity, ids.tolist()), dtype=object)
        return ids.array

    def _times(self, name: str) -> Any:
        times = self._frame[name]
        if times.dtype == object:
            micros = np.array(micros_of(name, times.tolist()), dtype="datetime64[us]")
            return self._series(micros).dt.tz_localize("UTC").array
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

    def _added(self, found: Any, kind: str) -> Any:
        values, is_missing = np.ma.getdata(found), np.ma.getmaskarray(found)
        if kind in ("BIGINT", "BOOLEAN"):
            nullable = "Int64" if kind == "BIGINT" else "boolean"
            return self._series(values).astype(nullable).mask(is_missing).array
        if kind == "TIMESTAMPTZ":
            times = np.where(is_missing, np.datetime64("NaT", "us"), values)
            return self._series(times).dt.tz_localize("UTC").array
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

    def _series(self, values: Any) -> Any:
        return self._new({"values": values})["values"]

    def _new(self, columns: dict[str, Any]) -> Any:
        # The class of pandas itself, because the caller's may be derived from it.
        mro = type(self._frame).__mro__
        return next(cls for cls in mro if cls.__name__ == "DataFrame")(columns)
