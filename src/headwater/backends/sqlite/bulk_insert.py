"""Writing many rows with few statements, because each statement hands the interpreter over twice.

SQLite works without holding Python's lock, so a statement of many rows runs beside the event
loop; one statement per row would wait for the lock again after each of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

# Few sizes, so that the prepared statements are found again.
_SIZES = (128, 64, 32, 16, 8, 4, 2, 1)

Row = Sequence[Any]


def insert(db: sqlite3.Connection, table: str, rows: Sequence[Row], *, conflict: str = "") -> int:
    """Inserts rows into ``table``, written with its columns; gives how many were written."""
    if not rows:
        return 0
    written = 0
    for part in _parts(rows):
        sql = _statement(table, len(rows[0]), len(part), conflict)
        written += db.execute(sql, tuple(chain.from_iterable(part))).rowcount
    return written


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    at = 0
    for size in _SIZES:
        while len(rows) - at >= size:
            yield rows[at : at + size]
            at += size


@cache
def _statement(table: str, columns: int, rows: int, conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * rows)} {conflict}"
