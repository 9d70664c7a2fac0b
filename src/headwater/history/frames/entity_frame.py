"""EntityFrame: a table of entity ids and times, of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from headwater.core.duckdb_session import Session, identifier, parquet
from headwater.declarations.features import EntityDef
from headwater.history.columns import ResultColumn


class TimeRemedies(NamedTuple):
    """How times without a time zone, and values that are not times, are corrected in a frame.

    ``{0}`` stands for the name of the column; ``epoch`` converts seconds since 1970. ``absent``
    is a remedy for a column that is not there.
    """

    naive: str
    other: str
    epoch: str
    absent: str = ""


class Spine(msgspec.Struct, frozen=True):
    """The columns that a point-in-time read needs: an id of each entity, and the times.

    Times before ``earliest`` are refused, because history was pruned up to then, and times after
    ``latest``.
    """

    entities: Sequence[EntityDef]
    at: str
    earliest: datetime | None = None
    latest: datetime | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table ``frame``, each with its name in the caller's frame."""
        ids = {f"id{number}": entity.id_field for number, entity in enumerate(self.entities)}
        return {**ids, "moment": self.at}

    @property
    def selected(self) -> str:
        """The SQL of these columns, from the rows of the caller's frame."""
        return ", ".join(f"{identifier(name)} AS {column}" for column, name in self.columns.items())


class FrameResult(NamedTuple):
    """The answers of a point-in-time read, each with all rows in order, and their columns."""

    answers: Sequence[Path]
    columns: Sequence[ResultColumn]
    metadata: Mapping[str, str] = MappingProxyType({})
    """What a file of the result says about it."""

    @property
    def query(self) -> str:
        """The SQL of the columns ``c0``, ``c1``… in the types of tables."""
        return self._select(column.sql for column in self.columns)

    @property
    def plain_query(self) -> str:
        """The SQL of the columns ``c0``, ``c1``… as ``ResultColumn.to_python`` reads them."""
        return self._select(column.plain for column in self.columns)

    def _select(self, expressions: Iterable[str]) -> str:
        selected = ", ".join(
            f"{expression} AS c{number}" for number, expression in enumerate(expressions)
        )
        # The rows of all answers are in one order.
        tables = (f"({parquet([file])}) AS e{number}" for number, file in enumerate(self.answers))
        return f"SELECT {selected} FROM {' POSITIONAL JOIN '.join(tables)}"

    @property
    def named(self) -> str:
        """The SQL that gives the columns of ``query``, as ``result``, the names of the result."""
        return ", ".join(
            f"result.c{number} AS {identifier(column.name)}"
            for number, column in enumerate(self.columns)
        )


class EntityFrame(Protocol):
    """A caller's table; its methods block and are called in a thread."""

    remedies: TimeRemedies
    has_columns: bool = True
    """Whether it has columns also if it has no rows."""

    def columns(self) -> Sequence[str]:
        """Return the names of its columns."""

    def load(self, duck: Session, spine: Spine) -> None:
        """Create the table or view ``frame``: ``row`` (0, 1, 2…), ``id0``, ``id1``…, ``moment``."""

    def attach(self, duck: Session, result: FrameResult) -> Any:
        """Return the caller's table with the columns of the result added."""

    def discard(self) -> None:
        """Remove the leftovers of a read that failed; most frames leave none."""
        return
