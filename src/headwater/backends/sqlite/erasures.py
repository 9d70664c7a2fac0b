"""The ledger of erased entities in SQLite, and the catalog of features."""

from __future__ import annotations

import sqlite3
from secrets import token_hex

from headwater.backends.sqlite.home import COUNT_BYTES, Home
from headwater.backends.sqlite.writer import Writer
from headwater.model.catalog import CatalogState
from headwater.ports import (
    SECRET_BYTES,
    Ledger,
    Tombstone,
    decode_catalog,
    encode_catalog,
    erasure_digest,
)

_SECRET = "SELECT value FROM meta WHERE key = 'erasure_key'"
_MAKE_SECRET = "INSERT OR IGNORE INTO meta (key, value) VALUES ('erasure_key', ?)"
_LATER = """
SELECT revision, digest, erased_at, position, may_return FROM erasures
WHERE revision > ? ORDER BY revision
"""
# The last event that was accepted: the sequence number is never used again.
_ADD = """
INSERT INTO erasures (digest, erased_at, position, may_return)
VALUES (?, ?, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), ?)
"""
_REVISION = "SELECT revision FROM catalog"


class SqliteErasures:
    """The ledger, of which every write transaction reads what is new to its process.

    A count that all processes share tells whether anything is: a query, however small, costs each
    published event some percent.
    """

    def __init__(self, home: Home, writer: Writer) -> None:
        self._home = home
        self._writer = writer
        self._erasures = home.shared_count()
        self._read_at: bytes | None = None
        self.ledger = Ledger()

    async def erase(self, entity: str, entity_id: str, *, at: int, may_return: bool) -> None:
        def job(db: sqlite3.Connection) -> None:
            # Before the commit: one erasure too many is counted if it fails, never one too few.
            count = int.from_bytes(self._erasures[:], "big") + 1
            self._erasures[:] = count.to_bytes(COUNT_BYTES, "big")
            db.execute(_MAKE_SECRET, (token_hex(SECRET_BYTES),))
            digest = erasure_digest(_secret(db), entity, entity_id)
            db.execute(_ADD, (digest, at, may_return))

        await self._writer.run(job)
        await self.refresh()

    async def refresh(self) -> Ledger:
        with self._home.translated():
            return self.read(self._home.reader)

    def current(self, db: sqlite3.Connection) -> Ledger:
        """Return the ledger as of a write transaction, which excludes erasures meanwhile."""
        count = self._erasures[:]
        if count != self._read_at:
            self.read(db)
            self._read_at = count
        return self.ledger

    def read(self, db: sqlite3.Connection) -> Ledger:
        """Return the ledger as of a transaction of any kind."""
        rows = db.execute(_LATER, (self.ledger.revision,)).fetchall()
        if rows:
            self.ledger.add(
                _secret(db),
                [
                    Tombstone(revision, digest, erased_at, str(position), bool(may_return))
                    for revision, digest, erased_at, position, may_return in rows
                ],
            )
        return self.ledger


def _secret(db: sqlite3.Connection) -> bytes:
    ((secret,),) = db.execute(_SECRET)
    return bytes.fromhex(secret)


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
