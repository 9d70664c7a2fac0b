"""Scheduled features that are SQL queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from headwater import FeatureStore, Worker, feature
from headwater.errors import DeclarationError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import metric, past, query, records
from tests.features.known_users import declare_seen, know

pytestmark = pytest.mark.both_environments


async def orders(store: FeatureStore, home: Path, *rows: str) -> None:
    """Fills the source ``orders``, a file or a table, and declares it."""
    file = home / "orders.csv"
    file.write_text("\n".join(["user_id,amount", *rows]) + "\n")
    store.source("orders", file)
    servers = store.settings.postgres
    if servers.url:
        table = f"{servers.schema}.orders"
        database = await asyncpg.connect(servers.url)
        await database.execute(
            f"CREATE SCHEMA IF NOT EXISTS {servers.schema};"
            f"CREATE TABLE IF NOT EXISTS {table} (user_id text, amount int); TRUNCATE {table}"
        )
        for row in rows:
            user_id, amount = row.split(",")
            await database.execute(f"INSERT INTO {table} VALUES ($1, $2)", user_id, int(amount))
        await database.close()


async def test_a_materialized_sql_feature_is_one_query_for_all_entities(
    store: FeatureStore, user: type, clock: ManualClock, home: Path
) -> None:
    await orders(store, home, "u1,5", "u1,7", "u2,1")

    @feature(
        entity=user,
        refresh=timedelta(minutes=5),
        materialize=True,
        sql="SELECT user_id, count(*) AS value FROM orders GROUP BY user_id",
    )
    def order_count(user_id: str) -> int: ...  # type: ignore[empty-body]

    await store.drain()
    assert await store.get_features(["order_count"], ["u1", "u2", "u3"]) == {
        "u1": {"order_count": 2},
        "u2": {"order_count": 1},
        "u3": {"order_count": None},
    }
    await orders(store, home, "u1,5", "u3,1")
    clock.advance("5m")
    await store.drain()
    assert await store.get_feature("order_count", "u1") == 1
    assert await store.get_feature("order_count", "u3") == 1
    assert await past(store, "order_count") == [2, 1]


async def test_a_sql_feature_that_is_not_materialized_is_written_for_entities_already_online(
    store: FeatureStore, user: type, clock: ManualClock, home: Path
) -> None:
    declare_seen(user)
    await orders(store, home, "u1,5", "u2,1")

    @feature(
        entity=user,
        refresh="5m",
        sql="SELECT user_id, sum(amount) AS spent FROM orders GROUP BY user_id",
    )
    def spent(user_id: str) -> int: ...  # type: ignore[empty-body]

    await know(store, "u1")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    assert await store.get_features(["spent"], ["u1", "u2"]) == {
        "u1": {"spent": 5},
        "u2": {"spent": None},
    }


async def test_a_sql_feature_reads_events_and_history_and_may_give_its_own_times(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        sql="""SELECT entity_id AS user_id, count(*) AS value, max("timestamp") AS "timestamp"
               FROM events WHERE event_type = 'click' GROUP BY entity_id""",
    )
    def clicks(user_id: str) -> int: ...  # type: ignore[empty-body]

    at = clock.now()
    for _ in range(3):
        await store.publish("click", "u1")
    clock.advance("5m")
    await store.drain()
    (row,) = await store.get_feature_values(["clicks"], ["u1"])
    assert (row["clicks"].value, row["clicks"].as_of) == (3, at)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT plan FROM nowhere", "nowhere"),
        ("SELECT 'u1' AS id, 1 AS value", "must return 'user_id' and 'value'"),
        ("SELECT 'u1' AS user_id, 'text' AS value", "cannot store 'text' as int"),
        ("SELEC 'u1' AS user_id, 1 AS value", "syntax error"),
    ],
)
async def test_a_query_that_fails_keeps_the_old_values_logs_and_tries_again(
    store: FeatureStore,
    user: type,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
    sql: str,
    problem: str,
) -> None:
    @feature(entity=user, refresh="5m", materialize=True, sql=sql)
    def wrong(user_id: str) -> int: ...  # type: ignore[empty-body]

    await store.set_feature("wrong", "u1", 1)
    for _ in range(2):
        clock.advance("5m")
        await store.drain()
        (record,) = records(capsys.readouterr().err, "refresh failed")
        assert problem in record["error"]
    assert await store.get_feature("wrong", "u1") == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'u1' AS user_id, 1 AS value; SELECT 2",
        "SELECT 'u1' AS user_id, 1 AS value;;\n-- and then\nDROP TABLE orders",
        "SELECT ';' AS user_id, 1 AS value; x",
        "/* ; */ SELECT 1; (SELECT 2)",
    ],
)
def test_a_query_with_several_statements_is_refused_where_it_is_declared(
    user: type, sql: str
) -> None:
    with pytest.raises(DeclarationError, match=r"test_sql_refresh.py:\d+: .*several statements"):

        @feature(entity=user, refresh="5m", sql=sql)
        def two(user_id: str) -> int: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'u1' AS user_id, length('a; b''; c') - 2 AS value; -- the end; really\n/* ; */ ;",
        "SELECT 'u1' AS user_id, 6 AS value, 1 AS \"; x\"",
        "SELECT 'u1' AS user_id, length($$a; b$$) + 2 AS value",
        "SELECT 'u1' AS user_id, length($tag$a; $$ b;$tag$) - 2 AS value",
        "SELECT 'u1' AS user_id, length(E'a\\'; b;') + 0 AS value",
        "SELECT 'u1' AS user_id, 5 + length(CASE 1 WHEN 2 THEN '' ELSE'\\' END) AS value "
        "WHERE ';' > ''",
        "SELECT 'u1' AS USER_ID, 6 AS VALUE",
        'SELECT \'u1\' AS "User_Id", 6 AS "Wanted"',
    ],
)
async def test_a_query_is_one_statement_whatever_its_texts_and_the_case_of_its_columns(
    store: FeatureStore, user: type, sql: str
) -> None:
    @feature(entity=user, refresh="5m", materialize=True, sql=sql)
    def wanted(user_id: str) -> int: ...  # type: ignore[empty-body]

    await store.drain()
    assert await store.get_feature("wanted", "u1") == 6


async def test_code_and_sql_values_come_in_one_answer(
    store: FeatureStore, user: type, clock: ManualClock, home: Path
) -> None:
    await orders(store, home, "u1,5")

    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        sql="SELECT user_id, sum(amount) AS value FROM orders GROUP BY user_id",
    )
    def spent(user_id: str) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user)
    async def doubled(user_id: str) -> int:
        return 2 * int(await store.get_feature("spent", user_id))

    @feature(entity=user, template="{spent} of {doubled}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    await store.drain()
    assert await store.get_features(["spent", "doubled", "line"], ["u1"]) == {
        "u1": {"spent": 5, "doubled": 10, "line": "5 of 10"}
    }


async def test_a_row_that_cannot_be_stored_is_named_and_the_others_are_written(
    store: FeatureStore, user: type, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await orders(store, home, "u1,1", "u2,0", "u3,3")

    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        sql="SELECT user_id, nullif(amount, 0) AS value FROM orders",
    )
    def amount(user_id: str) -> int: ...  # type: ignore[empty-body]

    before = metric("headwater_refreshes_total", feature="amount", outcome="failed")
    await store.drain()
    assert await store.get_features(["amount"], ["u1", "u2", "u3"]) == {
        "u1": {"amount": 1},
        "u2": {"amount": None},
        "u3": {"amount": 3},
    }
    (record,) = records(capsys.readouterr().err, "refresh failed")
    assert (record["feature"], record["entity_id"]) == ("amount", "u2")
    assert "cannot store None as int" in record["error"]
    failed = metric("headwater_refreshes_total", feature="amount", outcome="failed")
    assert failed == before + 1


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 'u1' AS user_id, $1 AS value", "parameters"),
        ("SELEC user_id, 1 AS value", "syntax error"),
    ],
)
async def test_a_query_that_can_never_run_is_refused_when_the_worker_starts(
    store: FeatureStore, user: type, sql: str, problem: str
) -> None:
    @feature(entity=user, refresh="5m", materialize=True, sql=sql)
    def wrong(user_id: str) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(DeclarationError, match=rf"test_sql_refresh.py:\d+: .*'wrong': .*{problem}"):
        await Worker(store).run()


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT user_id, amuont AS value FROM orders", "amuont"),
        ("SELECT user_id, amount FROM orders", "must return 'user_id' and 'value'"),
    ],
)
async def test_a_query_that_cannot_run_yet_is_named_when_the_worker_starts(
    store: FeatureStore,
    user: type,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    sql: str,
    problem: str,
) -> None:
    await orders(store, home, "u1,1")

    @feature(entity=user, refresh="5m", materialize=True, sql=sql)
    def wrong(user_id: str) -> int: ...  # type: ignore[empty-body]

    worker = Worker(store)
    worker.stop()
    await worker.run()
    (record,) = records(capsys.readouterr().err, "query cannot be run")
    assert record["feature"] == "wrong"
    assert problem in record["error"]


@pytest.mark.parametrize("settings", ["production"], indirect=True)
async def test_a_worker_starts_while_the_database_of_its_queries_is_unavailable(
    settings: Settings, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings.replace(postgres={"url": "postgresql://localhost:1/none"})
    async with FeatureStore(settings=settings, clock=clock) as store:

        @store.entity
        class User:
            user_id: str

        for name in ("one", "two"):

            @store.feature(User, refresh="5m", materialize=True, sql="SELECT 1", name=name)
            def number(user_id: str) -> int: ...  # type: ignore[empty-body]

        worker = Worker(store)
        worker.stop()
        await worker.run()
    (record,) = records(capsys.readouterr().err, "queries not checked")
    assert record["level"] == "warning"


async def test_an_average_of_whole_numbers_is_a_float_in_every_database(
    store: FeatureStore, user: type, home: Path
) -> None:
    await orders(store, home, "u1,1", "u1,2")

    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        sql="SELECT user_id, avg(amount) AS value FROM orders GROUP BY user_id",
    )
    def average(user_id: str) -> float: ...  # type: ignore[empty-body]

    await store.drain()
    assert await store.get_feature("average", "u1") == 1.5


async def test_a_time_of_a_query_needs_a_time_zone(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    naive = "TIMESTAMP '2026-01-05 12:00:00'"
    for name, time in (("without", naive), ("named", f"{naive} AT TIME ZONE 'Europe/Rome'")):

        def noon(user_id: str) -> int: ...  # type: ignore[empty-body]

        sql = f"SELECT 'u1' AS user_id, 1 AS value, {time} AS \"timestamp\""
        feature(entity=user, name=name, refresh="5m", materialize=True, sql=sql)(noon)

    await store.drain()
    (row,) = await store.get_feature_values(["without", "named"], ["u1"])
    assert row["without"].value is None
    assert row["named"].as_of == datetime(2026, 1, 5, 11, tzinfo=UTC)
    problems = records(capsys.readouterr().err, "refresh failed")
    (problem,) = [record["error"] for record in problems if record.get("entity_id") == "u1"]
    assert "returns 2026-01-05 12:00:00 as timestamp, without a time zone; name its zone" in problem


@pytest.mark.parametrize("materialize", [True, False])
async def test_rows_that_a_query_returns_again_are_written_once(
    store: FeatureStore, user: type, clock: ManualClock, home: Path, materialize: bool
) -> None:
    declare_seen(user)
    await know(store, "u1")
    # The first digit of an amount is its hour.
    sql = """SELECT user_id, amount % 1000 AS value, TIMESTAMPTZ '2026-01-01 00:00:00+00'
                 + (amount - amount % 1000) * INTERVAL '3.6 seconds' AS "timestamp" FROM orders"""

    @feature(entity=user, refresh="5m", materialize=materialize, sql=sql)
    def price(user_id: str) -> int: ...  # type: ignore[empty-body]

    async def run(*amounts: int) -> list[tuple[int, int]]:
        await orders(store, home, *(f"u1,{amount}" for amount in amounts))
        clock.advance("5m")
        await store.drain()
        rows = await query(
            store,
            "SELECT as_of, value_int FROM feature_history WHERE feature = 'price'"
            " AND entity_id = 'u1' ORDER BY as_of, written_at",
        )
        return [(as_of.astimezone(UTC).hour, value) for as_of, value in rows]

    await orders(store, home)
    await store.drain()
    first = [(1, 5), (2, 6), (3, 7)]
    assert await run(3007, 1005, 2006) == first
    assert await run(3007, 1005, 2006) == first
    # A correction of an old row, a late row and a new one.
    changed = await run(3007, 1004, 2006, 3, 4008)
    assert changed == [(0, 3), (1, 5), (1, 4), (2, 6), (3, 7), (4, 8)]
    assert await run(3007, 1004, 2006, 3, 4008) == changed
    # The current row corrected and undone: both changes count.
    assert (await run(4009))[-2:] == [(4, 8), (4, 9)]
    assert (await run(4008))[-3:] == [(4, 8), (4, 9), (4, 8)]
    assert await store.get_feature("price", "u1") == 8


async def test_a_row_that_a_query_returns_again_stays_valid_and_caught_up(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    sql = "SELECT 'u1' AS user_id, 1 AS value, TIMESTAMPTZ '2025-01-01 00:00:00+00' AS timestamp"

    @feature(entity=user, refresh="5m", materialize=True, sql=sql, ttl="7m")
    def lasting(user_id: str) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user, refresh="5m", materialize=True, sql=sql, freshness="caught_up")
    def current(user_id: str) -> int: ...  # type: ignore[empty-body]

    for _ in range(3):
        clock.advance("5m")
        await store.drain()
    (row,) = await store.get_feature_values(["lasting", "current"], ["u1"])
    assert (row["lasting"].value, row["current"].written_at) == (1, clock.now())
    assert len(await past(store, "lasting")) > 1
    assert await past(store, "current") == [1]


async def test_a_row_outlasts_a_ttl_that_its_feature_no_longer_has(
    store: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    def declare(store: FeatureStore, ttl: str | None) -> FeatureStore:
        @store.entity
        class User:
            user_id: str

        @store.feature(
            User,
            refresh="5m",
            materialize=True,
            sql="SELECT 'u1' AS user_id, 1 AS value,"
            " TIMESTAMPTZ '2025-01-01 00:00:00+00' AS timestamp",
            ttl=ttl,
        )
        def rank(user_id: str) -> int: ...  # type: ignore[empty-body]

        return store

    async with declare(FeatureStore(settings=settings, clock=clock), "7m") as before:
        await before.drain()
    async with declare(FeatureStore(settings=settings, clock=clock), None) as after:
        clock.advance("5m")
        await after.drain()
        clock.advance("3m")
        assert await after.get_feature("rank", "u1") == 1
