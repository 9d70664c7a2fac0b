"""Long reads use a replica that has all that the primary had when the read began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import duckdb
import pytest
from prometheus_client import REGISTRY

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.postgres import replicas
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.backends.postgres.inspection import inspect
from headwater.backends.postgres.pool import Connection
from headwater.core.clock import SystemClock, to_micros
from headwater.errors import ConfigError, InvalidInputError
from headwater.model.values import new_id
from headwater.ports import FrameColumn, FrameQuery, SeriesQuery
from headwater.settings.schema import Settings
from tests.backends.postgres.outbox import MemoryOutbox
from tests.backends.postgres.story import START, Open, change, rows, until, values
from tests.conftest import on_servers
from tests.servers import Machine, replica_of, restartable_postgres

ON_REPLICA = "SELECT pg_is_in_recovery()"


class Pair(NamedTuple):
    """A primary and its replica."""

    url: str
    replica_url: str
    replica: Machine


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with restartable_postgres() as (url, _), replica_of(url) as (replica_url, replica):
        yield Pair(url, replica_url, replica)


@pytest.fixture
def postgres_url(pair: Pair) -> str:
    return pair.url


@pytest.fixture
async def past(pair: Pair, opening: Open, monkeypatch: pytest.MonkeyPatch) -> PostgresEnvironment:
    """A store that tries its replica before each long read."""
    monkeypatch.setattr(replicas, "_PAUSE_SECONDS", 0.0)
    return await opening(postgres={"replica_url": pair.replica_url, "replica_timeout": 60})


@pytest.fixture
async def replica(pair: Pair) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(pair.replica_url)
    yield connection
    await connection.execute("SELECT pg_wal_replay_resume()")
    await connection.close()


def read_by(server: str) -> float:
    name = "headwater_replica_reads_total"
    return REGISTRY.get_sample_value(name, {"server": server}) or 0.0


async def is_on_replica(past: PostgresEnvironment) -> Any:
    [(is_in_recovery,)] = await rows(past, ON_REPLICA)
    return is_in_recovery


def points(folder: Path) -> Path:
    file = folder / "points.parquet"
    with duckdb.connect() as duck:
        duck.execute(
            f"COPY (SELECT range AS row, 'u' || range % 3 AS entity_id,"
            f" {to_micros(START)} + 1000000 * range AS \"at\" FROM range(30)) TO '{file}'"
        )
    return file


async def test_frames_series_exports_and_queries_are_read_from_the_replica(
    past: PostgresEnvironment, outbox: MemoryOutbox, tmp_path: Path
) -> None:
    await past.offline.append([change(n, n, entity_id=f"u{n % 3}") for n in range(30)])
    micros = to_micros(START)
    outbox.put((f"{micros}-0", micros, "click", "u1", "e1", micros, {}), kind="events")
    before, primary = read_by("replica"), read_by("primary")

    answer = tmp_path / "answer.parquet"
    query = FrameQuery(points(tmp_path), [FrameColumn("clicks", "int")])
    await past.offline.read_frame(query, answer)
    assert duckdb.sql(f"SELECT v0 FROM '{answer}'").fetchall() == [(n,) for n in range(30)]
    [series] = await past.offline.write_series(
        SeriesQuery(query.points, "clicks", 0, known=False, most_rows=100), tmp_path
    )
    assert duckdb.sql(f"SELECT count(*) FROM '{series.rows}'").fetchall() == [(30,)]
    history = tmp_path / "history.parquet"
    assert await past.offline.export_history(history, after=0) == 30
    [events] = await past.offline.export_events(tmp_path, ["click"], {0: f"{micros}-0"}, files=1)
    assert duckdb.sql(f"SELECT event_id FROM '{events}'").fetchall() == [("e1",)]
    assert await values(past) == [*range(30)]
    assert await is_on_replica(past)
    assert read_by("replica") == before + 6
    assert read_by("primary") == primary


async def test_a_frame_with_values_of_its_own_is_read_from_the_primary(
    past: PostgresEnvironment, tmp_path: Path
) -> None:
    extra = tmp_path / "extra.parquet"
    duckdb.sql(
        f"COPY (SELECT 'u1' AS entity_id, '7' AS value, {to_micros(START)} AS as_of) TO '{extra}'"
    )
    columns = [FrameColumn("clicks", "int")]
    answer, before = tmp_path / "answer.parquet", read_by("replica")
    query = FrameQuery(points(tmp_path), columns, extra={"clicks": extra})
    await past.offline.read_frame(query, answer)
    assert duckdb.sql(f"SELECT v0 FROM '{answer}' LIMIT 2").fetchall() == [(None,), (7,)]
    assert read_by("replica") == before


async def test_a_read_waits_until_the_replica_has_what_was_written_before(
    past: PostgresEnvironment, replica: Connection
) -> None:
    await replica.execute("SELECT pg_wal_replay_pause()")
    await past.offline.append([change(1)])
    reading = asyncio.create_task(values(past))
    done, _ = await asyncio.wait({reading}, timeout=0.3)
    assert not done
    before = read_by("replica")
    await replica.execute("SELECT pg_wal_replay_resume()")
    assert await reading == [1]
    assert read_by("replica") == before + 1


async def test_a_replica_that_stays_behind_is_not_read(
    pair: Pair, past: PostgresEnvironment, opening: Open, replica: Connection
) -> None:
    replica_settings = {"replica_url": pair.replica_url, "replica_timeout": 0.05}
    impatient = await opening(postgres=replica_settings)
    await past.offline.append([change(1)])
    assert await is_on_replica(past)
    await replica.execute("SELECT pg_wal_replay_pause()")
    await past.offline.append([change(2, 1)])
    before = read_by("primary")
    assert await values(impatient) == [1, 2]
    assert read_by("primary") == before + 1
    await replica.execute("SELECT pg_wal_replay_resume()")
    assert await values(past) == [1, 2]
    assert await is_on_replica(impatient)


async def test_a_replica_that_could_not_be_used_is_not_tried_at_once_again(
    pair: Pair, opening: Open, replica: Connection
) -> None:
    impatient = {"replica_url": pair.replica_url, "replica_timeout": 0.05}
    past = await opening(postgres=impatient)
    await replica.execute("SELECT pg_wal_replay_pause()")
    await past.offline.append([change(1)])
    assert await values(past) == [1]
    await replica.execute("SELECT pg_wal_replay_resume()")
    assert not await is_on_replica(past)


async def test_without_its_replica_a_store_reads_from_the_primary(
    pair: Pair, past: PostgresEnvironment
) -> None:
    await past.offline.append([change(1)])
    assert await is_on_replica(past)
    pair.replica.stop()
    try:
        assert await values(past) == [1]
        assert not await is_on_replica(past)
    finally:
        pair.replica.start()
    await until(lambda: is_on_replica(past))


async def test_a_training_set_has_what_was_published_and_not_what_was_forgotten(
    pair: Pair, redis_url: str
) -> None:
    schema = f"test_{new_id()[-12:]}"
    settings = on_servers(redis_url, pair.url, schema).replace(
        postgres={"replica_url": pair.replica_url, "replica_timeout": 60}
    )
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="clicked")
    def clicks(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["clicks"])

    async with store:
        for number in range(3):
            await store.publish("clicked", f"u{number}", {"clicks": number})
        await store.drain()
        spine = [{"user_id": f"u{number}", "timestamp": SystemClock().now()} for number in range(3)]
        before, primary = read_by("replica"), read_by("primary")
        rows_read = await store.get_historical_features(spine, ["clicks"])
        assert [row["clicks"] for row in rows_read] == [0, 1, 2]
        await store.admin.forget("User", "u1", reason="asked")
        rows_read = await store.get_historical_features(spine, ["clicks"])
        assert [row["clicks"] for row in rows_read] == [0, None, 2]
        assert read_by("replica") > before
        assert read_by("primary") == primary


async def test_of_several_replicas_one_that_can_be_used_is_read(pair: Pair, opening: Open) -> None:
    user, _, host = pair.replica_url.partition("@")
    past = await opening(
        postgres={"replica_url": f"{user}@127.0.0.1:1,{host}", "replica_timeout": 60}
    )
    for _ in range(3):
        assert await is_on_replica(past)


async def test_a_read_that_is_in_the_way_of_the_replay_is_repeated(
    past: PostgresEnvironment, replica: Connection, database: Connection
) -> None:
    await past.offline.append([change(1)])
    slow = "SELECT value_int, pg_sleep(0.5) FROM feature_history"
    reading = asyncio.create_task(rows(past, slow))

    async def is_running() -> bool:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE query = $1 AND state = 'active'"
        return bool(await replica.fetchval(sql, slow))

    await until(is_running)
    async with database.transaction():
        await database.execute("LOCK TABLE _history IN ACCESS EXCLUSIVE MODE")
    assert [value for value, _ in await reading] == [1]


async def test_an_error_of_a_query_is_that_of_the_replica(past: PostgresEnvironment) -> None:
    before = read_by("primary")
    with pytest.raises(InvalidInputError, match="no_such_column"):
        await rows(past, "SELECT no_such_column FROM feature_history")
    assert read_by("primary") == before


@pytest.mark.parametrize("kind", ["the primary itself", "another database"])
async def test_a_server_that_is_not_a_replica_is_not_read(
    pair: Pair, opening: Open, kind: str
) -> None:
    wrong = pair.url if kind == "the primary itself" else f"{pair.replica_url[:-8]}template1"
    past = await opening(postgres={"replica_url": wrong, "replica_timeout": 60})
    before = read_by("primary")
    await past.offline.append([change(1)])
    assert await values(past) == [1]
    assert read_by("primary") == before + 1


async def test_an_invalid_url_names_its_setting(opening: Open) -> None:
    with pytest.raises(ConfigError, match="HEADWATER_POSTGRES_REPLICA_URL"):
        await opening(postgres={"replica_url": "postgresql://user@host:port/database"})


@pytest.mark.usefixtures("past")
async def test_the_doctor_examines_every_replica(
    pair: Pair, settings: Settings, replica: Connection, database: Connection
) -> None:
    async def found(url: str) -> list[tuple[str, str]]:
        postgres = {"replica_url": url, "replica_timeout": 0.2, "connect_timeout": 5}
        findings = await inspect(settings.replace(postgres=postgres), SystemClock())
        return [(each.severity, each.found) for each in findings if each.check == "replica"]

    async def is_well() -> bool:
        return await found(pair.replica_url) == [("ok", "it has all that the primary has")]

    await until(is_well)
    user, _, host = pair.replica_url.partition("@")
    [down, (well, _)] = await found(f"{user}@127.0.0.1:1,{host}")
    assert (down[0], well) == ("warning", "ok")
    [(severity, reason)] = await found(pair.url)
    assert severity == "warning"
    assert "not in recovery" in reason
    [(_, reason)] = await found(f"{pair.replica_url[:-8]}template1")
    assert "another cluster" in reason
    await replica.execute("SELECT pg_wal_replay_pause()")
    await database.execute("CREATE TABLE later (n integer)")
    [(_, reason)] = await found(pair.replica_url)
    assert "behind the primary" in reason
