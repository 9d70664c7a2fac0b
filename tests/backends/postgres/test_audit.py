"""The audit log in Postgres."""

from __future__ import annotations

import asyncpg
import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.migrate import VERSION, migrate
from headwater.settings.schema import Settings


async def test_creating_the_tables_stands_in_the_log_which_refuses_changes(
    settings: Settings, database: Connection
) -> None:
    await migrate(settings)
    await migrate(settings)
    schema = settings.postgres.schema
    log = f'SELECT action, target, parameters FROM "{schema}"._audit_log'
    row = ("migrate", schema, f'{{"version":{VERSION}}}')
    assert [tuple(each) for each in await database.fetch(log)] == [row]
    for table in ("_audit_log", "_audit_outcomes"):
        name = f'"{schema}".{table}'
        for sql in (f"UPDATE {name} SET at = now()", f"DELETE FROM {name}", f"TRUNCATE {name}"):
            with pytest.raises(asyncpg.RaiseError, match="can only be added to"):
                await database.execute(sql)
    assert [tuple(each) for each in await database.fetch(log)] == [row]
