"""Fixtures: a schema for each test in a shared Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.core.clock import SystemClock
from headwater.model.values import new_id
from headwater.settings.schema import Settings
from tests.backends.postgres.outbox import MemoryOutbox
from tests.backends.postgres.story import Open
from tests.poolers import through_pooler


@pytest.fixture
async def settings(postgres_url: str) -> AsyncIterator[Settings]:
    """Settings with a schema for the test."""
    schema = f"test_{new_id()[-12:]}"
    postgres = {"url": postgres_url, "schema": schema, "pool_size": 5, "connect_timeout": 60}
    postgres |= through_pooler(postgres_url)
    # A server on an overloaded machine answers late, and is not down.
    yield Settings().replace(postgres=postgres, record={"timeout": 60})
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    await connection.close()


@pytest.fixture
def outbox() -> MemoryOutbox:
    return MemoryOutbox()


@pytest.fixture
async def opening(settings: Settings, outbox: MemoryOutbox) -> AsyncIterator[Open]:
    """Open the schema of the test, each time as another process would."""
    opened: list[PostgresEnvironment] = []

    async def open_one(**changes: Any) -> PostgresEnvironment:
        changed = settings.replace(**changes)
        opened.append(await open_postgres(changed, SystemClock(), outbox))
        return opened[-1]

    yield open_one
    for environment in opened:
        await environment.close()


@pytest.fixture
async def past(opening: Open) -> PostgresEnvironment:
    return await opening()


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Connection]:
    """A separate connection that sees the tables of the store."""
    connection = await asyncpg.connect(
        settings.postgres.url, server_settings={"search_path": f"{settings.postgres.schema},public"}
    )
    yield connection
    await connection.close()
