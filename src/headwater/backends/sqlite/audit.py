"""The audit log in SQLite: two tables that only grow."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import from_micros, to_micros
from headwater.errors import InvalidInputError
from headwater.model.admin import AuditEntry
from headwater.ports import AuditQuery, unknown_cursor

# A trigger ignores an entry or an outcome that exists.
_ADD = "INSERT INTO audit_log VALUES (?, ?, ?, ?, ?, ?)"
_END = "INSERT INTO audit_outcomes VALUES (?, ?, ?, ?)"
_AT = "SELECT at FROM audit_log WHERE id = ?"
_LIST = """
SELECT log.id, log.at, actor, action, target, parameters,
    coalesce(outcome, 'started'), outcomes.at, error
FROM audit_log AS log LEFT JOIN audit_outcomes AS outcomes USING (id)
WHERE (log.at, log.id) < (?, ?){} ORDER BY log.at DESC, log.id DESC LIMIT ?
"""
_NO_END = (2**63 - 1, "")


class SqliteAuditLog:
    """The audit log, read inline."""

    def __init__(self, home: Home, writer: Writer) -> None:
        self._home = home
        self._writer = writer

    async def append(self, entry: AuditEntry) -> None:
        parameters = msgspec.json.encode(entry.parameters).decode()
        at = to_micros(entry.at)
        row = (entry.id, at, entry.actor, entry.action, entry.target, parameters)
        end = None if entry.finished_at is None else to_micros(entry.finished_at)

        def job(db: sqlite3.Connection) -> None:
            db.execute(_ADD, row)
            if entry.outcome != "started":
                db.execute(_END, (entry.id, end, entry.outcome, entry.error))

        await self._writer.run(job)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        bound = self._position(query.cursor)
        if query.before is not None:
            bound = min(bound, (to_micros(query.before), ""))
        tests: dict[str, str | int] = {}
        if query.since is not None:
            tests["log.at >="] = to_micros(query.since)
        if query.action is not None:
            tests["action ="] = query.action
        if query.actor is not None:
            tests["actor ="] = query.actor
        sql = _LIST.format("".join(f" AND {test} ?" for test in tests))
        rows = self._home.read(sql, (*bound, *tests.values(), query.limit))
        return [_entry(row) for row in rows]

    def _position(self, cursor: str | None) -> tuple[int, str]:
        if cursor is None:
            return _NO_END
        rows = cursor.isascii() and self._home.read(_AT, (cursor,))
        if not rows:
            raise InvalidInputError(unknown_cursor(cursor))
        return rows[0][0], cursor


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    entry_id, at, actor, action, target, parameters, outcome, finished_at, error = row
    return AuditEntry(
        id=entry_id,
        at=from_micros(at),
        actor=actor,
        action=action,
        target=target,
        parameters=msgspec.json.decode(parameters),
        outcome=outcome,
        finished_at=None if finished_at is None else from_micros(finished_at),
        error=error,
    )
