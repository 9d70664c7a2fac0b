"""Outcomes of contexts in SQLite, byte for byte as sealed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple, replace

from headwater.backends.sql_lists import SqlDatabase
from headwater.backends.sql_outcomes import (
    ALL,
    COLUMNS,
    SqlOutcomeReads,
    already_stored,
    outcome_of,
)
from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.clock import to_micros
from headwater.errors import UnknownContextError
from headwater.ports import NO_DISCLOSURES, StoredOutcome, is_storable

_OUTCOMES = f"outcomes ({ALL}, created_at, counted_model)"
# The length is known without reading the disclosures, which are the largest part of a record.
_RECORD = """
SELECT created_at, model, length(disclosures) = 2 AND disclosures = x'5b5d' FROM records
WHERE context_id = ? AND record_hash = ?
"""
_EARLIER = f"SELECT {ALL} FROM outcomes WHERE outcome_id = ? OR source_key = ?"
_UNLESS_KNOWN = "ON CONFLICT DO NOTHING"
_REDACT = """
UPDATE outcomes SET disclosures = ?, redactions = ?, is_redacted = 1
WHERE outcome_id = ? AND redactions = ?
"""


class _Append:
    """An outcome to append; then the one that is stored."""

    def __init__(self, outcome: StoredOutcome) -> None:
        self.given = self.stored = outcome


class SqliteOutcomes(SqlOutcomeReads):
    """The outcomes of a record log; concurrent appends share a commit in the writer thread."""

    def __init__(self, database: SqlDatabase, writer: Writer) -> None:
        super().__init__(database, "records", "outcomes")
        self._writer = writer

        def append(items: Sequence[_Append], db: sqlite3.Connection) -> None:
            _append(database, items, db)

        self._append_outcomes = append  # one object: the key of bulk writes

    async def append_outcome(self, outcome: StoredOutcome) -> StoredOutcome:
        outcome.check()
        item = _Append(outcome)
        await self._writer.run_bulk(self._append_outcomes, item)
        return item.stored

    async def redact_outcome(
        self, outcome_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        if not is_storable(outcome_id):
            return False

        def job(db: sqlite3.Connection) -> bool:
            with erasing(db):
                row = (disclosures, redactions, outcome_id, expected)
                return db.execute(_REDACT, row).rowcount == 1

        return await self._writer.run(job, erases=True)


def _append(database: SqlDatabase, items: Sequence[_Append], db: sqlite3.Connection) -> None:
    """Insert outcomes; raise if one has no record, one exists and differs, or one of many exists.

    Erasures of records are written by the same thread, or wait for this transaction.
    """
    rows = [_row(item, db) for item in items]
    if bulk.insert(db, _OUTCOMES, rows, conflict=_UNLESS_KNOWN) == len(items):
        return
    if len(items) > 1:
        raise ValueError("an outcome already exists; append one by one")
    (item,) = items
    found = db.execute(_EARLIER, (item.given.outcome_id, item.given.source_key)).fetchall()
    earlier = already_stored(item.given, [outcome_of(database, row) for row in found])
    item.stored = earlier or item.given


def _row(item: _Append, db: sqlite3.Connection) -> tuple[Any, ...]:
    given = item.given
    record = db.execute(_RECORD, (given.context_id, given.record_hash)).fetchone()
    if record is None:
        raise UnknownContextError(given.context_id)
    created_at, model, is_withheld = record
    item.stored = replace(given, disclosures=NO_DISCLOSURES) if is_withheld else given
    values = [*astuple(item.stored)]
    values[_AT] = to_micros(given.at)
    return (*values, created_at, model)


_AT = COLUMNS.index("at")
