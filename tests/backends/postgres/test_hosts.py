"""Of several servers the primary is used, also after another one was promoted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import asyncpg
import pytest
from msgspec.structs import replace

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.inspection import inspect
from headwater.backends.postgres.migrate import migrate
from headwater.backends.postgres.pool import Postgres
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.model.values import new_id
from headwater.settings.schema import Settings
from tests.backends.postgres.story import Open, change, until, values
from tests.servers import Machine, follow, promote, replica_of, restartable_postgres

pytestmark = pytest.mark.direct


class Pair(NamedTuple):
    """Two servers, of which the first is the primary, and a store on both."""

    url: str
    replica_url: str
    primary: Machine
    replica: Machine

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in (self.primary, self.replica))


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        url, primary = stack.enter_context(restartable_postgres())
        replica_url, replica = stack.enter_context(replica_of(url))
        yield Pair(url, replica_url, primary, replica)


@pytest.fixture
async def settings(pair: Pair) -> Settings:
    postgres = {
        "url": pair.url.replace(f"127.0.0.1:{pair.primary.port}", "nowhere.invalid:1"),
        "hosts": pair.hosts,
        "schema": f"test_{new_id()[-12:]}",
        "connect_timeout": 60,
    }
    return Settings().replace(postgres=postgres, record={"timeout": 60})


@pytest.fixture
async def caught_up(pair: Pair) -> Callable[[], Awaitable[bool]]:
    """Whether the replica has all that the primary has."""

    async def is_caught_up() -> bool:
        primary, replica = [await asyncpg.connect(url) for url in (pair.url, pair.replica_url)]
        lsn = await primary.fetchval("SELECT pg_current_wal_lsn()::text")
        sql = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn"
        is_there = bool(await replica.fetchval(sql, lsn))
        await primary.close()
        await replica.close()
        return is_there

    return is_caught_up


async def port(connection: Connection) -> int:
    number: int = await connection.fetchval("SELECT inet_server_port()")
    return number


async def write(connection: Connection) -> int:
    await connection.execute("UPDATE _meta SET version = version")
    return await port(connection)


async def test_after_a_promotion_writes_go_to_the_new_primary(
    pair: Pair, settings: Settings, opening: Open, caught_up: Callable[[], Awaitable[bool]]
) -> None:
    past = await opening()
    await past.offline.append([change(1)])
    await until(caught_up)
    pair.primary.kill()
    with pytest.raises(BackendUnavailableError, match="no server that can be written to"):
        await past.offline.append([change(2, 1)])
    await promote(pair.replica_url)
    await past.offline.append([change(2, 1)])
    assert await values(past) == [1, 2]
    assert await migrate(settings) == []
    findings = await inspect(settings, SystemClock())
    assert findings[0].severity == "ok"
    assert pair.hosts in findings[0].looked_at
    [down, up] = [each for each in findings if each.check == "host"]
    assert (down.severity, up.severity, up.found) == ("warning", "ok", "a primary")

    # The former primary returns as a replica, with what it had and with what it missed.
    follow(pair.primary, pair.replica_url)
    other = await opening()
    await other.offline.append([change(3, 2)])
    assert await values(other) == [1, 2, 3]


async def test_a_server_that_became_read_only_is_left(
    pair: Pair, settings: Settings, caught_up: Callable[[], Awaitable[bool]]
) -> None:
    await migrate(settings)
    await until(caught_up)
    postgres = Postgres(settings.postgres)
    assert await asyncio.gather(*[postgres.run(write) for _ in range(3)]) == [pair.primary.port] * 3
    await promote(pair.replica_url)
    primary = await asyncpg.connect(pair.url)
    await primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await primary.execute("SELECT pg_reload_conf()")
    await primary.close()
    # Reading alone does not show it.
    assert await postgres.run(write) == pair.replica.port
    assert postgres.count("idle") == 1
    assert await asyncio.gather(*[postgres.run(port) for _ in range(3)]) == [pair.replica.port] * 3
    await postgres.close()


async def test_a_primary_that_hangs_is_left_with_its_other_connections(
    pair: Pair, settings: Settings, caught_up: Callable[[], Awaitable[bool]]
) -> None:
    await migrate(settings)
    await until(caught_up)
    postgres = Postgres(settings.replace(postgres={"timeout": 0.5}).postgres)
    await asyncio.gather(*[postgres.run(write) for _ in range(3)])
    assert postgres.count("idle") == 3
    with pair.primary.paused():
        await promote(pair.replica_url)
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            await postgres.run(write)
        assert postgres.count("idle") == 0
        # Connecting does not wait for it either.
        assert await postgres.run(write) == pair.replica.port
    # When it wakes up, no connection to it is left.
    assert await postgres.run(write) == pair.replica.port
    assert postgres.count("idle") == 1
    await postgres.close()


async def test_a_former_primary_that_wakes_up_gets_no_writes_from_any_pool(
    pair: Pair, settings: Settings, caught_up: Callable[[], Awaitable[bool]]
) -> None:
    await migrate(settings)
    await until(caught_up)
    patient = settings.replace(postgres={"connect_timeout": 5}).postgres
    first, second = Postgres(replace(patient, timeout=0.5)), Postgres(patient)
    for postgres in (first, second):
        assert await postgres.run(write) == pair.primary.port
    with pair.primary.paused():
        await promote(pair.replica_url)
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            await first.run(write)
        assert await first.run(write) == pair.replica.port
    # The other pool has not noticed anything: its connection is as good as before.
    assert await second.run(write) == pair.replica.port
    writes = [postgres.run(write) for postgres in (first, second) for _ in range(10)]
    assert await asyncio.gather(*writes) == [pair.replica.port] * 20
    pair.replica.stop()
    with pytest.raises(BackendUnavailableError):
        await first.run(write)
    alone = Postgres(replace(patient, hosts=f"127.0.0.1:{pair.primary.port},127.0.0.1:1"))
    assert await alone.run(write) == pair.primary.port
    for postgres in (first, second, alone):
        await postgres.close()


async def test_a_server_that_cannot_tell_its_timeline_is_used(
    pair: Pair, settings: Settings
) -> None:
    owner = await asyncpg.connect(pair.url)
    await owner.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    await owner.execute("CREATE ROLE plain LOGIN PASSWORD 'x'")
    await owner.close()
    url = f"postgresql://plain:x@{pair.hosts}/postgres"
    postgres = Postgres(replace(settings.postgres, url=url, hosts=""))
    assert await postgres.run(port) == pair.primary.port
    await postgres.close()


async def test_hosts_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="'two:port' is not a host and a port"):
        Settings().replace(postgres={"hosts": "one:5432,two:port"})
