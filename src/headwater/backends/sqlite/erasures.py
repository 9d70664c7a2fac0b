"""The ledger of erased entities in SQLite."""

from __future__ import annotations

import sqlite3
from secrets import token_hex

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer
from headwater.ports import SECRET_BYTES, Ledger, Tombstone, erasure_digest

_LAST = "SELECT max(revision) FROM erasures"
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


class SqliteErasures:
    """The ledger, of which every write transaction reads what is new to its process."""

    def __init__(self, home: Home, writer: Writer) -> None:
        self._home = home
        self._writer = writer
        self.ledger = Ledger()

    async def erase(self, entity: str, entity_id: str, *, at: int, may_return: bool) -> None:
        def job(db: sqlite3.Connection) -> None:
            db.execute(_MAKE_SECRET, (token_hex(SECRET_BYTES),))
            digest = erasure_digest(_secret(db), entity, entity_id)
            db.execute(_ADD, (digest, at, may_return))

        await self._writer.run(job)
        await self.refresh()

    async def refresh(self) -> Ledger:
        with self._home.translated():
            return self.current(self._home.reader)

    def current(self, db: sqlite3.Connection) -> Ledger:
        """Return the ledger as of a transaction, in which a write is compared with it."""
        ((last,),) = db.execute(_LAST)
        if last is not None and last > self.ledger.revision:
            found = db.execute(_LATER, (self.ledger.revision,)).fetchall()
            self.ledger.add(
                _secret(db),
                [
                    Tombstone(revision, digest, erased_at, str(position), bool(may_return))
                    for revision, digest, erased_at, position, may_return in found
                ],
            )
        return self.ledger


def _secret(db: sqlite3.Connection) -> bytes:
    ((secret,),) = db.execute(_SECRET)
    return bytes.fromhex(secret)
