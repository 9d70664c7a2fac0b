"""The tables of our embedded store, into which the floors write rows of their own."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from bench.process import ROOT

SCHEMA = ROOT / "src" / "headwater" / "backends" / "sqlite" / "schema.sql"
_FILLERS = {"": "''", "INTEGER": "0", "TEXT": "''", "BLOB": "x''"}


def database(path: Path | str) -> sqlite3.Connection:
    """Create a SQLite file with our tables and durable commits."""
    created = connected(path)
    created.executescript(SCHEMA.read_text())
    return created


def connected(path: Path | str) -> sqlite3.Connection:
    """Open a SQLite file as we do."""
    opened = sqlite3.connect(path, isolation_level=None)
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("PRAGMA synchronous = FULL")
    opened.execute("PRAGMA cache_size = -65536")
    opened.execute("PRAGMA mmap_size = 1073741824")
    return opened


def insert(table: str, *columns: str, **constants: str) -> str:
    """Return the INSERT of a row with a parameter for each column, and constants as SQL.

    Columns that the schema requires and the floor does not name get an empty value, so that a row
    costs what ours does after the schema has changed. A name that it does not have fails.
    """
    given = {**dict.fromkeys(columns, "?"), **constants}
    values = given | {name: empty for name, empty in _required(table) if name not in given}
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


@cache
def _required(table: str) -> list[tuple[str, str]]:
    """Return the columns of a table that need a value, each with an empty one."""
    with closing(database(":memory:")) as db:
        columns = db.execute(f"PRAGMA table_info({table})").fetchall()
    return [
        (name, _FILLERS[kind])
        for _, name, kind, is_required, default, _ in columns
        if is_required and default is None
    ]
