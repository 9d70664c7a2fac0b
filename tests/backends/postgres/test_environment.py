"""Opening Postgres: tables are created once, and errors name the remedy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.backends.postgres.migrate import VERSION, migrate
from headwater.core.clock import SystemClock
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    ClosedError,
    ConfigError,
    SchemaError,
)
from headwater.model.health import Health
from headwater.ports import Point
from headwater.settings.schema import Settings
from tests.backends.postgres.outbox import MemoryOutbox, value_row
from tests.backends.postgres.story import START, Open, change, rows, until, value_at, values
from tests.proxy import Proxy

WELL = Health("postgres", ok=True)


async def refused(settings: Settings, kind: type[Exception] = BackendError) -> str:
    """Return the error of opening the store."""
    with pytest.raises(kind) as raised:
        await open_postgres(settings, SystemClock(), MemoryOutbox())
    assert "\n" not in str(raised.value)
    return str(raised.value)


async def said_when_used(settings: Settings) -> str:
    """Return the error of using a store whose server is unavailable; opening it succeeds."""
    past = await open_postgres(settings, SystemClock(), MemoryOutbox())
    with pytest.raises(BackendUnavailableError) as raised:
        await past.offline.query("SELECT 1", {})
    health = await past.health()
    assert (health.ok, health.needed) == (False, False)
    await past.close()
    return str(raised.value)


# Tables


async def test_tables_are_made_once(settings: Settings, database: Connection) -> None:
    assert await migrate(settings) == [VERSION]
    tables = "SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
    before = await database.fetch(f"{tables} ORDER BY oid")
    assert await migrate(settings) == []
    assert await database.fetch(f"{tables} ORDER BY oid") == before


async def test_of_many_concurrent_migrations_one_creates_the_tables(settings: Settings) -> None:
    applied = await asyncio.gather(*(migrate(settings) for _ in range(8)))
    assert sorted(applied) == [[]] * 7 + [[VERSION]]


async def test_many_may_open_a_new_database_at_once_in_development(
    opening: Open, outbox: MemoryOutbox
) -> None:
    processes = await asyncio.gather(*(opening() for _ in range(5)))
    outbox.put(value_row(1))
    assert [await values(process) for process in processes] == [[1]] * 5


async def test_two_schemas_of_one_database_do_not_meet(
    opening: Open, settings: Settings, database: Connection
) -> None:
    one = await opening()
    await one.offline.append([change(1)])
    other_schema = settings.postgres.schema + "_b"
    elsewhere = settings.replace(postgres={"schema": other_schema})
    other = await open_postgres(elsewhere, SystemClock(), MemoryOutbox())
    assert await values(other) == []
    await other.close()
    await database.execute(f"DROP SCHEMA {other_schema} CASCADE")


async def test_in_production_missing_tables_raise_an_error_with_the_command_to_run(
    settings: Settings, opening: Open
) -> None:
    said = await refused(settings.replace(env="production"), SchemaError)
    assert said == (
        f"the tables in the Postgres schema '{settings.postgres.schema}' do not exist yet; "
        "run `headwater migrate`"
    )
    await migrate(settings)
    past = await opening(env="production")
    assert await past.health() == WELL


async def test_tables_of_an_older_version_are_left_alone_until_they_are_migrated(
    settings: Settings, database: Connection, opening: Open
) -> None:
    await migrate(settings)
    await database.execute("UPDATE _meta SET version = version - 1")
    expected = f"older Headwater (version {VERSION - 1}, this one needs {VERSION}); stop the"
    for env in ("development", "production"):
        said = await refused(settings.replace(env=env), SchemaError)
        assert expected in said
        assert said.endswith("run `headwater migrate`")
    assert await migrate(settings) == [VERSION]
    assert await migrate(settings) == []
    assert await (await opening(env="production")).health() == WELL


@pytest.mark.parametrize("env", ["development", "production"])
async def test_tables_of_a_newer_version_are_left_alone(
    settings: Settings, database: Connection, env: str
) -> None:
    await migrate(settings)
    await database.execute("UPDATE _meta SET version = 99")
    said = await refused(settings.replace(env=env), SchemaError)
    assert f"newer Headwater (version 99, this one knows {VERSION}); upgrade headwater" in said
    with pytest.raises(SchemaError, match="nothing was changed"):
        await migrate(settings)


async def test_a_migration_that_fails_changes_nothing(
    settings: Settings, database: Connection
) -> None:
    schema = settings.postgres.schema
    await database.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.events (a int)")
    with pytest.raises(BackendError, match='"events" already exists'):
        await migrate(settings)
    tables = await database.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace", schema
    )
    assert [name for (name,) in tables] == ["events"]


async def test_dropped_tables_are_named_in_the_error(
    past: PostgresEnvironment, database: Connection, settings: Settings
) -> None:
    await database.execute(f"DROP SCHEMA {settings.postgres.schema} CASCADE")
    with pytest.raises(SchemaError, match="run `headwater migrate`"):
        await value_at(past, 0)
    health = await past.health()
    assert (health.ok, "do not exist yet" in health.detail) == (False, True)


# Addresses, passwords and rights


def with_url(settings: Settings, **parts: str) -> Settings:
    """Return the settings with another URL."""
    there = urlsplit(settings.postgres.url)
    given = {
        "user": there.username or "",
        "password": there.password or "",
        "host": there.hostname or "",
        "port": str(there.port),
        "database": "postgres",
    } | parts
    url = "postgresql://{user}:{password}@{host}:{port}/{database}".format(**given)
    return settings.replace(postgres={"url": url})


@pytest.mark.direct
async def test_a_wrong_password_is_reported_without_showing_it(settings: Settings) -> None:
    said = await refused(with_url(settings, password="guessed-wrong"))
    assert "refuses the user or the password" in said
    assert said.endswith("correct HEADWATER_POSTGRES_URL")
    assert "guessed-wrong" not in said


@pytest.mark.direct
async def test_an_unknown_database_is_reported(settings: Settings) -> None:
    said = await refused(with_url(settings, database="nowhere"))
    assert 'database "nowhere" does not exist; create it' in said


@pytest.mark.direct
@pytest.mark.parametrize("where", [{"port": "1"}, {"host": "nowhere.invalid"}])
async def test_a_missing_server_is_reported(settings: Settings, where: dict[str, str]) -> None:
    said = await said_when_used(with_url(settings, **where))
    assert "cannot be reached" in said
    assert said.endswith("start it, or correct HEADWATER_POSTGRES_URL")


@pytest.mark.direct
async def test_an_unresponsive_server_is_reported(settings: Settings) -> None:
    async def listen_in_silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(listen_in_silence, "127.0.0.1", 0) as server:
        port = str(server.sockets[0].getsockname()[1])
        silent = with_url(settings, port=port).replace(postgres={"connect_timeout": 0.2})
        assert "did not answer in time" in await said_when_used(silent)


@pytest.mark.direct
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "Postgres has no address; set HEADWATER_POSTGRES_URL"),
        ("redis://localhost", "HEADWATER_POSTGRES_URL cannot be used: invalid DSN"),
        ("nonsense", "HEADWATER_POSTGRES_URL has an invalid host or port"),
        ("postgresql://me:hun/ter2@localhost/app", "HEADWATER_POSTGRES_URL has an invalid host"),
        ("postgresql://me:hunter2@[::1/app", "HEADWATER_POSTGRES_URL has an invalid host or port"),
    ],
)
async def test_an_invalid_url_is_refused(settings: Settings, url: str, problem: str) -> None:
    bad = settings.replace(postgres={"url": url})
    assert problem in await refused(bad, ConfigError)
    with pytest.raises(ConfigError):
        await migrate(bad)


async def test_a_database_that_cannot_hold_every_text_is_refused(
    settings: Settings, database: Connection
) -> None:
    name = settings.postgres.schema
    await database.execute(
        f"CREATE DATABASE {name} ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0"
    )
    try:
        assert "ENCODING 'UTF8'" in await refused(with_url(settings, database=name))
    finally:
        await database.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def clerk(settings: Settings, database: Connection) -> AsyncIterator[Settings]:
    """Settings with a user who may use the tables but not create any."""
    schema, role = settings.postgres.schema, f"clerk_{settings.postgres.schema}"
    await migrate(settings)
    await database.execute(
        f"""
        CREATE ROLE {role} LOGIN PASSWORD 'clerk';
        GRANT USAGE ON SCHEMA {schema} TO {role};
        GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role};
        GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
        """
    )
    yield with_url(settings, user=role, password="clerk")
    await database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.direct
async def test_a_user_without_permission_to_create_tables_gets_an_error(clerk: Settings) -> None:
    with pytest.raises(BackendError, match="grant it to the user"):
        await migrate(clerk.replace(postgres={"schema": "not_there_yet"}))


@pytest.mark.direct
async def test_a_user_who_may_only_use_the_tables_is_enough(
    clerk: Settings, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1))
    past = await open_postgres(clerk.replace(env="production"), SystemClock(), outbox)
    try:
        await past.offline.maintain()
        await past.offline.append([change(2, 1)])
        assert await values(past) == [1, 2]
    finally:
        await past.close()


# Down and up again


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    there = urlsplit(postgres_url)
    proxy = Proxy(there.port or 5432, there.hostname or "127.0.0.1")
    await proxy.open()
    yield proxy
    await proxy.close()


@pytest.mark.direct
async def test_a_server_that_was_down_is_used_again_when_it_is_up(
    proxy: Proxy, postgres_url: str, opening: Open, outbox: MemoryOutbox
) -> None:
    past = await opening(postgres={"url": proxy.url(postgres_url)})
    outbox.put(value_row(1, 1))
    assert await values(past) == [1]

    await proxy.close()
    outbox.put(value_row(2, 2))
    for use in (past.offline.maintain, lambda: values(past), lambda: past.offline.append([])):
        with pytest.raises(BackendError, match="cannot be reached"):
            await use()
    health = await past.health()
    assert (health.name, health.ok) == ("postgres", False)
    assert "cannot be reached" in health.detail

    await proxy.open()
    assert await past.health() == WELL
    assert await values(past) == [1, 2]


async def test_a_connection_that_was_lost_while_idle_is_not_noticed(
    past: PostgresEnvironment, database: Connection
) -> None:
    await asyncio.gather(*(past.offline.append([change(n, n)]) for n in range(5)))
    await end_all(database)
    assert await values(past) == list(range(5))


async def test_a_search_whose_connection_is_lost_is_made_again(
    past: PostgresEnvironment, database: Connection
) -> None:
    await past.offline.append([change(1)])
    lock = "pg_advisory_xact_lock(hashtext(current_schema()))"
    async with database.transaction():
        await database.execute(f"SELECT {lock}")
        searching = asyncio.create_task(
            rows(past, f"SELECT value_int, {lock} FROM feature_history")
        )

        async def is_waiting() -> bool:
            count: int = await database.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
                " AND application_name = 'headwater/' || current_schema()"
            )
            return count > 0

        await until(is_waiting)
        await end_all(database)
    [(value, _)] = await searching
    assert value == 1


async def end_all(database: Connection) -> None:
    await database.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE application_name = 'headwater/' || current_schema()"
    )


async def test_more_users_than_connections_wait_for_each_other(opening: Open) -> None:
    past = await opening(postgres={"pool_size": 2})
    sql = "SELECT 1, pg_sleep(0.01)"
    answers = await asyncio.gather(*(rows(past, sql) for _ in range(20)))
    assert [answer[0][0] for answer in answers] == [1] * 20


@pytest.mark.direct
async def test_a_server_without_free_connections_is_reported(
    clerk: Settings, database: Connection
) -> None:
    await database.execute(f"ALTER ROLE clerk_{clerk.postgres.schema} CONNECTION LIMIT 0")
    assert "has no connection left" in await said_when_used(clerk)


# The end


async def test_a_closed_store_says_so(past: PostgresEnvironment) -> None:
    await past.close()
    await past.close()
    with pytest.raises(ClosedError, match="this store is closed"):
        await past.offline.as_of(["clicks"], [Point("u1", START)])
    health = await past.health()
    assert not health.ok


async def test_a_store_that_was_opened_before_a_fork_says_so(
    past: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ClosedError, match="opened before a fork"):
        await past.offline.as_of(["clicks"], [Point("u1", START)])
    monkeypatch.undo()


async def test_closing_waits_for_a_running_drain(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    outbox.on_fetch = hold
    reading = asyncio.create_task(value_at(past, 0))
    await reached.wait()
    reading.cancel()
    closing = asyncio.create_task(past.close())
    go_on.set()
    await closing
    assert outbox.pending() == set()
