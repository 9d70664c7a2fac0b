"""The audit log in Postgres: two tables that only grow."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg
import msgspec

from headwater.backends.postgres.pool import Connection, Postgres
from headwater.core.clock import in_range
from headwater.errors import InvalidInputError
from headwater.model.admin import AuditEntry
from headwater.ports import AuditQuery, is_storable, unknown_cursor

_ADD = "INSERT INTO _audit_log VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"
_END = "INSERT INTO _audit_outcomes VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
_AT = "SELECT at FROM _audit_log WHERE id = $1"
_LIST = """
SELECT log.id, log.at, actor, action, target, parameters,
    coalesce(outcome, 'started') AS outcome, outcomes.at AS finished_at, error
FROM _audit_log AS log LEFT JOIN _audit_outcomes AS outcomes USING (id)
WHERE (log.at, log.id) < ($1, $2){} ORDER BY log.at DESC, log.id DESC LIMIT $3
"""
_NO_END = (datetime.max.replace(tzinfo=UTC), "")


class PostgresAuditLog:
    """The audit log of a schema; entries of a store stay when another one adopts its history."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def append(self, entry: AuditEntry) -> None:
        async def add(connection: Connection) -> None:
            async with connection.transaction():
                await append_entry(connection, entry)

        await self._postgres.run(add)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        texts = {"action =": query.action, "actor =": query.actor}
        if not all(is_storable(text) for text in texts.values() if text is not None):
            return []
        bound = await self._position(query.cursor)
        if query.before is not None:
            bound = min(bound, (in_range(query.before), ""))
        filters = {"log.at >=": query.since and in_range(query.since), **texts}
        tests = {test: value for test, value in filters.items() if value is not None}
        conditions = "".join(f" AND {test} ${number}" for number, test in enumerate(tests, 4))
        arguments = (*bound, query.limit, *tests.values())
        rows = await self._postgres.run(
            lambda connection: connection.fetch(_LIST.format(conditions), *arguments)
        )
        return [_entry(row) for row in rows]

    async def _position(self, cursor: str | None) -> tuple[datetime, str]:
        if cursor is None:
            return _NO_END
        at = None
        if is_storable(cursor):
            at = await self._postgres.run(lambda connection: connection.fetchval(_AT, cursor))
        if at is None:
            raise InvalidInputError(unknown_cursor(cursor))
        return at, cursor


async def append_entry(connection: Connection, entry: AuditEntry) -> None:
    """Insert an entry and its outcome, unless they exist."""
    parameters = msgspec.json.encode(entry.parameters).decode()
    await connection.execute(
        _ADD, entry.id, entry.at, entry.actor, entry.action, entry.target, parameters
    )
    if entry.outcome != "started":
        await connection.execute(_END, entry.id, entry.finished_at, entry.outcome, entry.error)


def _entry(row: asyncpg.Record) -> AuditEntry:
    values = dict(row)
    values["parameters"] = msgspec.json.decode(values["parameters"])
    return AuditEntry(**values)
