"""DuckDB relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import duckdb

from headwater.core.duckdb_session import Session, identifier, parquet
from headwater.core.sql_literals import text
from headwater.history.frames.entity_frame import FrameResult, Spine, TimeRemedies


class RelationFrame:
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
        selected = ", ".join(
            f"{identifier(name)} AS {column}" for column, name in spine.columns.items()
        )
        file = duck.folder.parent / "frame.parquet"
        self._run(
            f"CREATE TEMP TABLE {self._stored} AS"
            f" SELECT *, row_number() OVER () - 1 AS {self._view} FROM {self._view}"
        )
        self._run(
            f"COPY (SELECT {self._view} AS row, {selected} FROM {self._stored})"
            f" TO {text(file)} (FORMAT parquet)"
        )
        duck.run(f"CREATE VIEW frame AS {parquet([file])}")

    def attach(self, duck: Session, result: FrameResult) -> Any:
        file = duck.folder / "result.parquet"
        duck.write(result.query, file)
        added = ", ".join(
            f"c{number} AS {identifier(column.name)}"
            for number, column in enumerate(result.columns)
        )
        self._run(
            f"CREATE TEMP TABLE {self._result} AS SELECT given.* EXCLUDE {self._view}, {added}"
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
