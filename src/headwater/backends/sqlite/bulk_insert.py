"""Insert many rows with few statements.

SQLite releases Python's interpreter lock during a statement, so a statement of many rows runs in
parallel with the event loop; with one statement per row, the writer would wait for the lock after
each row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

# Few sizes, so that prepared statements are reused.
_SIZES = (128, 64, 32, 16, 8, 4, 2, 1)

Row = Sequence[Any]


def insert(db: sqlite3.Connection, table: str, rows: Sequence[Row], *, conflict: str = "") -> int:
    """Insert rows into ``table``, a name with columns; return the number of rows written."""
    if not rows:
        return 0
    if len(rows) == 1:  # the most frequent case
        return db.execute(_statement(table, len(rows[0]), 1, conflict), rows[0]).rowcount
    written = 0
    for part in _parts(rows):
        sql = _statement(table, len(rows[0]), len(part), conflict)
        written += db.execute(sql, tuple(chain.from_iterable(part))).rowcount
    return written


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


@cache
def _statement(table: str, columns: int, rows: int, conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * rows)} {conflict}"
