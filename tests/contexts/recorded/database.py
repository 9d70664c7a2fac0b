"""Direct access to the tables of records, for tests that tamper with them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from headwater.settings.schema import Settings

TABLES = ("records", "record_keys", "outcomes")
# In SQLite the last keys wait to be put in their places.
EMBEDDED = {
    "records": "records",
    "outcomes": "outcomes",
    "record_keys": "(SELECT * FROM record_keys UNION ALL SELECT * FROM waiting_keys)",
}
POSTGRES = {table: f"_{table}" for table in TABLES}


class Database:
    """One statement at a time, with arguments as $1, $2; ``{records}`` is the table's name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def run(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        if self._settings.postgres.url:
            return await self._postgres(sql, arguments)
        with closing(sqlite3.connect(Path(self._settings.home) / "headwater.db")) as db:
            rows = db.execute(sql.format(**EMBEDDED).replace("$", "?"), arguments).fetchall()
            db.commit()
            return rows

    async def _postgres(self, sql: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        own = {"search_path": self._settings.postgres.schema}
        db = await asyncpg.connect(self._settings.postgres.url, server_settings=own)
        try:
            return [tuple(row) for row in await db.fetch(sql.format(**POSTGRES), *arguments)]
        finally:
            await db.close()

    async def everything(self) -> bytes:
        """All that the tables of records hold, one column after the other."""
        rows = [row for table in TABLES for row in await self.run(f"SELECT * FROM {{{table}}}")]
        values = [value for row in rows for value in row]
        return b"\n".join(v if isinstance(v, bytes) else str(v).encode() for v in values)
