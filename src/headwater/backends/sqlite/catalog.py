"""The catalog of features in SQLite: one row, replaced under the write lock."""

from __future__ import annotations

import sqlite3

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer
from headwater.model.catalog import CatalogState
from headwater.ports import decode_catalog, encode_catalog

_REVISION = "SELECT revision FROM catalog"


class SqliteCatalog:
    """One JSON document and its revision."""

    def __init__(self, home: Home, writer: Writer) -> None:
        self._home = home
        self._writer = writer

    async def load(self) -> CatalogState:
        rows = self._home.read("SELECT state FROM catalog")
        return decode_catalog(rows[0][0]) if rows else CatalogState()

    async def revision(self) -> int:
        return _only(self._home.read(_REVISION))

    async def replace(self, state: CatalogState) -> bool:
        row = (state.revision, encode_catalog(state))

        def job(db: sqlite3.Connection) -> bool:
            if _only(db.execute(_REVISION).fetchall()) != state.revision - 1:
                return False
            db.execute("REPLACE INTO catalog VALUES (1, ?, ?)", row)
            return True

        return await self._writer.run(job)


def _only(rows: list[tuple[int]]) -> int:
    return rows[0][0] if rows else 0
