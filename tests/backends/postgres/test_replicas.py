"""Long reads use a replica that has all that the primary had when the read began."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import duckdb
import pytest
from prometheus_client import REGISTRY

from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature
from headwater.backends.postgres import environment, replicas
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.backends.postgres.inspection import inspect
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import ReplicaReads, replica_pools
from headwater.core.clock import SystemClock, to_micros
from headwater.core.masking import FileText
from headwater.errors import ConfigError, InvalidInputError
from headwater.model.values import new_id
from headwater.ports import FrameColumn, FrameQuery, SeriesQuery
from headwater.settings.schema import Settings
from headwater.settings.servers import PostgresSettings
from tests.backends.postgres.documents import embedding, near, spec, write
from tests.backends.postgres.outbox import MemoryOutbox
from tests.backends.postgres.story import START, Open, change, rows, until, values
from tests.conftest import on_servers
from tests.servers import Machine, promote, replica_of, restartable_postgres
from tests.stored import record

pytestmark = pytest.mark.direct

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
    await resume(connection)
    await connection.close()


async def resume(replica: Connection) -> None:
    """Let the replica replay again, which may at once be in the way of this very statement."""
    with suppress(asyncpg.SerializationError):
        await replica.execute("SELECT pg_wal_replay_resume()")


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
    await resume(replica)
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
    await resume(replica)
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
    await resume(replica)
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


async def test_known_values_and_contexts_do_not_miss_what_a_replica_has_not_replayed(
    pair: Pair, redis_url: str, replica: Connection
) -> None:
    schema = f"test_{new_id()[-12:]}"
    of_replica = {"replica_url": pair.replica_url, "replica_timeout": 60, "replica_reads": "all"}
    store = FeatureStore(
        settings=on_servers(redis_url, pair.url, schema).replace(postgres=of_replica)
    )

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="clicked", default=0, freshness="caught_up")
    def clicks(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["clicks"])

    Index(store, "docs", embedder="lexical")

    @context(store, freshness_sla="1m")
    async def prompt(user_id: str) -> list[str]:
        chunks = await store.search("docs", "refunds", mode="text")
        return [f"{await store.get_feature('clicks', user_id)}", *(chunk.text for chunk in chunks)]

    async with store:
        await store.publish("clicked", "u1", {"clicks": 1})
        await store.index("docs", "d1", "refunds take a week")
        await store.drain()
        first = SystemClock().now()
        made = await store.assemble("prompt", {"user_id": "u1"})
        assert (made.content, made.freshness_status) == ("1\n\nrefunds take a week", "guaranteed")
        await replica.execute("SELECT pg_wal_replay_pause()")
        await store.publish("clicked", "u1", {"clicks": 2})
        await store.index("docs", "d1", "refunds take a day")
        await store.drain()
        made = await store.assemble("prompt", {"user_id": "u1"})
        assert (made.content, made.freshness_status) == ("2\n\nrefunds take a day", "guaranteed")
        spine = [{"user_id": "u1", "timestamp": at} for at in (first, SystemClock().now())]
        reading = asyncio.create_task(store.get_historical_features(spine, ["clicks"], known=True))
        done, _ = await asyncio.wait({reading}, timeout=0.3)
        assert not done
        before = read_by("replica")
        await resume(replica)
        assert [row["clicks"] for row in await reading] == [1, 2]
        assert read_by("replica") > before


@pytest.fixture
async def shared(pair: Pair, opening: Open, monkeypatch: pytest.MonkeyPatch) -> PostgresEnvironment:
    """A store that reads everything that it may from its replica."""
    monkeypatch.setattr(replicas, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(environment, "SHORT_SECONDS", 60.0)
    replica = {"replica_url": pair.replica_url, "replica_timeout": 60, "replica_reads": "all"}
    return await opening(postgres=replica)


async def test_records_and_searches_see_every_write_before_them_on_the_replica(
    shared: PostgresEnvironment,
) -> None:
    await shared.vectors.create("docs", spec())
    await shared.vectors.activate("docs", 1)
    before, primary = read_by("replica"), read_by("primary")
    for number in range(20):
        written = record()
        await shared.records.append(written, [b"key"])
        assert (await shared.records.get(written.context_id)) == written
        assert len(await shared.records.find(b"key", limit=100)) == number + 1
        vector = embedding(1, number, 0)
        await shared.vectors.write([write(f"d{number}", f"text {number}", vectors=[vector])])
        hits = await shared.vectors.nearest(near(vector, limit=100))
        assert len(hits.hits) == number + 1
    assert read_by("replica") == before + 60
    assert read_by("primary") == primary


async def test_records_and_searches_do_not_wait_long_for_a_replica(
    pair: Pair, opening: Open, replica: Connection
) -> None:
    past = await opening(postgres={"replica_url": pair.replica_url, "replica_reads": "all"})
    await past.vectors.create("docs", spec())
    await past.vectors.activate("docs", 1)
    await replica.execute("SELECT pg_wal_replay_pause()")
    written, before = record(), read_by("primary")
    await past.records.append(written, [])
    assert await past.records.get(written.context_id) == written
    vector = embedding(1, 0, 0)
    await past.vectors.write([write("d", "text", vectors=[vector])])
    assert len((await past.vectors.nearest(near(vector))).hits) == 1
    assert read_by("primary") == before + 2


async def test_records_and_searches_use_the_primary_without_the_setting(
    past: PostgresEnvironment,
) -> None:
    before, written = read_by("replica"), record()
    await past.records.append(written, [])
    assert await past.records.get(written.context_id) == written
    assert await past.vectors.generations() == []
    assert read_by("replica") == before


async def test_a_redacted_record_is_not_shown_by_the_replica(shared: PostgresEnvironment) -> None:
    written = record()
    await shared.records.append(written, [])
    assert await shared.records.redact(
        written.context_id, expected=written.redactions, disclosures=b"{}", redactions=b"[1]"
    )
    stored = await shared.records.get(written.context_id)
    assert stored is not None
    assert (stored.disclosures, stored.redactions) == (b"{}", b"[1]")


async def test_of_several_replicas_one_that_can_be_used_is_read(pair: Pair, opening: Open) -> None:
    user, _, host = pair.replica_url.partition("@")
    past = await opening(
        postgres={"replica_url": f"{user}@127.0.0.1:1,{host}", "replica_timeout": 60}
    )
    for _ in range(3):
        assert await is_on_replica(past)


class Silent(NamedTuple):
    """A server that accepts connections and never answers, first of two replicas."""

    url: str
    accepted: list[asyncio.StreamWriter]


@pytest.fixture
async def silent(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Silent]:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    monkeypatch.setattr(random, "shuffle", lambda _: None)
    user, _, host = pair.replica_url.partition("@")
    port = server.sockets[0].getsockname()[1]
    yield Silent(f"{user}@127.0.0.1:{port},{host}", accepted)
    for writer in accepted:
        writer.transport.abort()
    server.close()
    await server.wait_closed()


async def test_a_dead_replica_of_two_delays_one_read_only(silent: Silent, opening: Open) -> None:
    past = await opening(postgres={"replica_url": silent.url, "connect_timeout": 1})
    for _ in range(3):
        assert await is_on_replica(past)
    assert len(silent.accepted) == 1


async def test_a_replica_that_failed_is_tried_by_one_read_at_a_time(
    silent: Silent, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = await opening(postgres={"replica_url": silent.url, "connect_timeout": 1})
    monkeypatch.setattr(replicas, "_PAUSE_SECONDS", 0.0)
    assert await is_on_replica(past)
    monkeypatch.setattr(replicas, "_PAUSE_SECONDS", 600.0)
    assert all(await asyncio.gather(*[is_on_replica(past) for _ in range(5)]))
    assert len(silent.accepted) == 2


async def test_a_replica_that_hangs_does_not_hold_a_read(pair: Pair, opening: Open) -> None:
    past = await opening(postgres={"replica_url": pair.replica_url, "replica_timeout": 1})
    assert await is_on_replica(past)
    with pair.replica.paused():
        async with asyncio.timeout(30):  # half of what a statement may take
            # One on the connection that is open, and one on a new connection.
            reads = await asyncio.gather(is_on_replica(past), is_on_replica(past))
    assert not any(reads)


@pytest.mark.parametrize("function", ["pg_control_system", "pg_control_recovery"])
async def test_servers_that_do_not_say_how_far_they_are_are_read_from_the_primary(
    past: PostgresEnvironment, pair: Pair, settings: Settings, database: Connection, function: str
) -> None:
    await database.execute(f"ALTER FUNCTION pg_catalog.{function}() RENAME TO hidden")
    try:
        assert not await is_on_replica(past)
        asked = settings.replace(postgres={"replica_url": pair.replica_url})
        [told] = [
            each.found for each in await inspect(asked, SystemClock()) if each.check == "replica"
        ]
        assert "cannot say how far it is" in told
    finally:
        await database.execute(f"ALTER FUNCTION pg_catalog.hidden() RENAME TO {function}")
    await until(lambda: is_on_replica(past))


@pytest.fixture
def chain(pair: Pair) -> Iterator[tuple[str, str]]:
    """Two replicas of the primary."""
    with replica_of(pair.url) as (first, _), replica_of(pair.url) as (second, _):
        yield first, second


async def test_a_replica_that_follows_a_former_primary_is_not_read(
    pair: Pair, chain: tuple[str, str], database: Connection
) -> None:
    promoted_url, left_url = chain
    await promote(promoted_url)
    await database.execute("CREATE TABLE lost AS SELECT repeat('x', 99) FROM generate_series(1, 9)")
    left = await asyncpg.connect(left_url)

    async def has_lost() -> bool:
        return bool(await left.fetchval("SELECT 1 FROM pg_class WHERE relname = 'lost'"))

    await until(has_lost)
    settings = PostgresSettings(url=promoted_url, replica_url=left_url)
    primary, pools = Postgres(settings), replica_pools(settings, {})
    reads = ReplicaReads(primary, pools, 2.0)

    async def is_read() -> bool:
        return bool(await reads.run(lambda connection: connection.fetchval(ON_REPLICA)))

    assert not await is_read()
    for postgres in (primary, *pools):
        await postgres.close()
    await left.close()


async def test_a_replica_that_follows_the_new_primary_is_read(
    chain: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_PAUSE_SECONDS", 0.0)
    promoted_url, following_url = chain
    promoted, following = [await asyncpg.connect(url) for url in chain]

    async def follow(source: str) -> None:
        await following.execute(f"ALTER SYSTEM SET primary_conninfo = '{source}'")
        await following.execute("SELECT pg_reload_conf()")

    async def has_less() -> bool:
        """Whether it receives nothing more, and has nothing that the other one lacks."""
        if await following.fetchval("SELECT count(*) FROM pg_stat_wal_receiver"):
            return False
        lsn = await following.fetchval("SELECT pg_last_wal_receive_lsn()::text")
        sql = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn"
        return bool(await promoted.fetchval(sql, lsn))

    await follow("")
    await until(has_less)
    await promote(promoted_url)
    server = urlsplit(promoted_url)
    await follow(
        f"host=127.0.0.1 port={server.port} user={server.username} password={server.password}"
    )
    settings = PostgresSettings(url=promoted_url, replica_url=following_url)
    primary, pools = Postgres(settings), replica_pools(settings, {})
    reads = ReplicaReads(primary, pools, 2.0)

    async def is_read() -> bool:
        return bool(await reads.run(lambda connection: connection.fetchval(ON_REPLICA)))

    await until(is_read)
    for postgres in (primary, *pools):
        await postgres.close()
    await promoted.close()
    await following.close()


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


async def test_a_password_in_the_address_of_a_replica_is_used_there(
    pair: Pair, replica: Connection
) -> None:
    primary = await asyncpg.connect(pair.url)
    await primary.execute("CREATE ROLE reader LOGIN PASSWORD 'own'")
    await primary.close()

    async def is_there() -> bool:
        roles = "SELECT count(*) FROM pg_roles WHERE rolname = 'reader'"
        return bool(await replica.fetchval(roles))

    await until(is_there)
    place = urlsplit(pair.url)
    replica_url = pair.replica_url.replace(f"{place.username}:{place.password}@", "reader:own@")
    for password in (place.password or "", FileText.of(place.password or "", Path("/none"))):
        (pool,) = replica_pools(
            PostgresSettings(url=pair.url, password=password, replica_url=replica_url), {}
        )
        assert await pool.run(lambda found: found.fetchval("SELECT current_user")) == "reader"
        await pool.close()
