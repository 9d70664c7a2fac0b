"""A store behind a PgBouncer that gives every transaction another session.

`make check-pgbouncer` runs all other tests of Postgres through one, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dev.pgbouncer import MISSING, find_pgbouncer
from headwater.backends.postgres.connections import Connection, is_pooled
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.backends.postgres.inspection import inspect
from headwater.backends.postgres.migrate import migrate
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.retention import _alone
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.settings.schema import Settings
from tests.backends.postgres.story import Open, after, change, until, values
from tests.servers import Machine, pgbouncer_of

pytestmark = pytest.mark.direct


@pytest.mark.pooler
def test_pgbouncer_is_installed() -> None:
    assert find_pgbouncer(), MISSING


@pytest.fixture(scope="module")
def pgbouncer(postgres_url: str) -> Iterator[Machine]:
    with pgbouncer_of(postgres_url) as machine:
        yield machine


@pytest.fixture
def hosts(pgbouncer: Machine) -> str:
    return f"127.0.0.1:{pgbouncer.port}"


@pytest.fixture
def pooled(settings: Settings, hosts: str) -> Settings:
    return settings.replace(postgres={"hosts": hosts, "pooler": "transaction"})


async def test_a_pooler_that_the_settings_do_not_name_is_recognized(
    settings: Settings, hosts: str, opening: Open
) -> None:
    unnamed = {"hosts": hosts}
    with pytest.raises(ConfigError, match=r"set postgres\.pooler to transaction"):
        await opening(postgres=unnamed)
    [finding] = await inspect(settings.replace(postgres=unnamed), SystemClock())
    assert finding.check == "connection"
    assert "unsupported startup parameter" in finding.found
    assert "set postgres.pooler to transaction" in finding.found


@pytest.mark.usefixtures("pgbouncer")
@pytest.mark.parametrize("schema", ["headwater", "public", "user"])
async def test_a_pooler_that_ignores_parameters_is_recognized(
    settings: Settings, postgres_url: str, schema: str
) -> None:
    names = "search_path,statement_timeout,idle_in_transaction_session_timeout"
    ignored = f"ignore_startup_parameters = {names},synchronous_commit,jit"
    with pgbouncer_of(postgres_url, ignored) as machine:
        unnamed = {"hosts": f"127.0.0.1:{machine.port}", "schema": schema}
        findings = await inspect(settings.replace(postgres=unnamed), SystemClock())
    [pooler] = [each for each in findings if each.check == "pooler"]
    assert (pooler.severity, pooler.remedy) == ("error", "set postgres.pooler to transaction")


async def test_a_password_that_the_pooler_refuses_is_reported(
    pooled: Settings, opening: Open
) -> None:
    with pytest.raises(BackendUnavailableError, match="refuses the user or the password"):
        await opening(postgres={"password": "wrong", **pooler_of(pooled)})


def pooler_of(settings: Settings) -> dict[str, Any]:
    return {"hosts": settings.postgres.hosts, "pooler": settings.postgres.pooler}


async def test_the_doctor_finds_nothing_wrong_with_a_pooler_that_is_named(
    pooled: Settings,
) -> None:
    await migrate(pooled)
    found = {each.check: each.severity for each in await inspect(pooled, SystemClock())}
    assert found["pooler"] == found["migrations"] == found["connection"] == "ok"


async def test_no_session_keeps_anything_of_a_transaction(
    pooled: Settings, database: Connection
) -> None:
    postgres = Postgres(pooled.postgres)

    async def use(connection: Connection) -> Any:
        return await connection.fetchrow(
            "SELECT current_setting('search_path'), current_setting('statement_timeout')"
        )

    answers = await asyncio.gather(*[postgres.run(use) for _ in range(10)])
    assert {*map(tuple, answers)} == {(f"{pooled.postgres.schema}, public", "1min")}

    async def prepare(connection: Connection) -> Any:
        return await connection.fetchval("SELECT count(*) FROM pg_prepared_statements")

    assert await postgres.run(prepare) == 0
    await postgres.close()
    names = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headwater/' || $1"
    assert await database.fetchval(names, pooled.postgres.schema) == 0


async def test_what_a_killed_process_kept_while_pruning_is_removed(
    pooled: Settings, opening: Open, database: Connection
) -> None:
    past: PostgresEnvironment = await opening(postgres=pooler_of(pooled))
    await past.offline.append([change(1), change(2, 10), change(3, 20)])
    await database.execute("CREATE UNLOGGED TABLE _kept_history AS SELECT * FROM _history")
    pruned = await past.offline.prune(history=after(15), events=after(15))
    assert pruned.history == 1
    assert await values(past) == [2, 3]
    assert await database.fetchval("SELECT to_regclass('_kept_history')") is None


async def test_work_ends_with_the_connection_that_holds_its_lock(
    pooled: Settings, database: Connection
) -> None:
    await migrate(pooled)
    postgres = Postgres(pooled.postgres)
    attempts = 0

    async def work(connection: Connection) -> None:
        nonlocal attempts
        attempts += 1
        assert is_pooled(connection)
        async with _alone(connection):
            holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
            if attempts == 1:
                pids = [pid for (pid,) in await database.fetch(holders)]
                assert len(pids) == 1
                await database.execute("SELECT pg_terminate_backend($1)", *pids)
                await until(lambda: is_closed(connection))
            await connection.execute("SELECT 1")

    async def is_closed(connection: Connection) -> bool:
        return connection.is_closed()

    await postgres.run(work)
    assert attempts == 2
    await postgres.close()


async def test_only_one_process_has_the_lock(pooled: Settings) -> None:
    await migrate(pooled)
    first, second = Postgres(pooled.postgres), Postgres(pooled.postgres)
    inside: list[str] = []

    async def work(connection: Connection, name: str) -> None:
        async with _alone(connection):
            inside.append(name)
            await connection.execute("SELECT pg_sleep(0.3)")
            assert inside.pop() == name

    await asyncio.gather(
        first.run(lambda connection: work(connection, "first")),
        second.run(lambda connection: work(connection, "second")),
    )
    await first.close()
    await second.close()
