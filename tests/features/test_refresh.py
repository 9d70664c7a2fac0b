"""Scheduled features: one run per tick for every entity, in code or in SQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.logging import Outage
from headwater.declarations.runtime import runtime_of
from headwater.engine.scheduler import Scheduler
from headwater.errors import DeclarationError
from headwater.features.schedule import next_due
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, metric, past, query, records, until

pytestmark = pytest.mark.both_environments


async def know(store: FeatureStore, *entity_ids: str) -> None:
    """Publish an event of each entity, so that the store knows it."""
    for entity_id in entity_ids:
        await store.publish("seen", entity_id)


def declare_seen(user: type) -> None:
    @feature(entity=user, trigger="seen")
    async def seen(user_id: str, event: ServiceEvent) -> bool:
        return True


async def test_a_materialized_feature_is_recomputed_for_every_known_entity_at_each_tick(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1", "u2", "u3")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    runs.clear()
    clock.advance("5m")
    await store.drain()
    assert sorted(runs) == ["u1", "u2", "u3"]
    await store.drain()
    assert len(runs) == 3
    values = await store.get_features(["score"], ["u1", "u2", "u3"])
    assert sorted(row["score"] for row in values.values()) == [1, 2, 3]


async def test_a_feature_that_is_not_materialized_is_computed_when_first_read_and_kept_fresh_then(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m")
    def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1", "u2")
    await store.drain()
    assert runs == []
    assert await store.get_feature("score", "u1") == 1
    assert await store.get_feature("score", "u1") == 1
    clock.advance("5m")
    await store.drain()
    assert runs == ["u1", "u1"]
    (row,) = await store.get_feature_values(["score"], ["u1"])
    assert (row["score"].value, row["score"].source) == (2, "online")
    assert set(await past(store, "score")) == {1, 2}


async def test_a_tick_reaches_more_entities_than_fit_in_one_portion(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return 1

    await runtime_of(store).rebind(
        settings.replace(home=settings.home + "/one", partitions=1), clock
    )
    ids = [f"u{number:04}" for number in range(1_234)]
    await store.bus.publish_many(
        [ServiceEvent("seen", entity_id, {}, clock.now()) for entity_id in ids], dedup=False
    )
    await store.drain()
    runs.clear()
    clock.advance("5m")
    await store.drain()
    assert sorted(runs) == ids
    values = await store.get_features(["score"], ids)
    assert all(row["score"] == 1 for row in values.values())


async def test_a_refresh_that_fails_keeps_the_old_value_logs_counts_and_tries_again(
    store: FeatureStore, user: type, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    declare_seen(user)
    broken = False

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        if broken and user_id == "u1":
            raise ConnectionError("no answer")
        return clock.now().minute

    await know(store, "u1", "u2")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    before = await store.get_features(["score"], ["u1", "u2"])
    failures = metric("headwater_refreshes_total", feature="score", outcome="failed")
    broken = True
    clock.advance("5m")
    await store.drain()
    after = await store.get_features(["score"], ["u1", "u2"])
    assert after["u1"] == before["u1"] != {"score": None}
    assert after["u2"] != before["u2"]
    assert metric("headwater_refreshes_total", feature="score", outcome="failed") > failures
    (record,) = records(capsys.readouterr().err, "refresh failed")
    assert (record["level"], record["feature"], record["entity_id"], record["error"]) == (
        "warning",
        "score",
        "u1",
        "ConnectionError: no answer",
    )
    broken = False
    clock.advance("5m")
    await store.drain()
    assert await store.get_feature("score", "u1") == clock.now().minute


async def test_ticks_that_were_missed_coalesce_into_one_and_are_counted(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs = 0

    @feature(entity=user, refresh="5m", materialize=True)
    async def coalesced(user_id: str) -> int:
        nonlocal runs
        runs += 1
        return runs

    await know(store, "u1")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    runs = 0
    missed = metric("headwater_ticks_missed_total", feature="coalesced")
    clock.advance("1h")
    await store.drain()
    assert runs == 1
    assert metric("headwater_ticks_missed_total", feature="coalesced") == missed + 11


async def test_several_schedulers_make_one_run_per_tick(
    settings: Settings, clock: ManualClock
) -> None:
    runs: list[str] = []
    stores = [FeatureStore(settings=settings, clock=clock) for _ in range(3)]
    for store in stores:

        @entity(store)
        class User:
            user_id: str

        declare_seen(User)

        @feature(entity=User, refresh="5m", materialize=True)
        async def score(user_id: str) -> int:
            runs.append(user_id)
            return 1

    await know(stores[0], "u1", "u2")
    await stores[0].drain()
    runs.clear()
    clock.advance("5m")
    workers = [Worker(store) for store in stores]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: len(runs) >= 2)
    await until(lambda: _idle(stores[0]))
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert sorted(runs) == ["u1", "u2"]
    for store in stores:
        await store.close()


async def _idle(store: FeatureStore) -> bool:
    return await backlog(store) == 0


async def test_a_running_worker_ticks_by_itself(settings: Settings) -> None:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    declare_seen(User)
    runs = 0

    @feature(entity=User, refresh="50ms", materialize=True)
    async def score(user_id: str) -> int:
        nonlocal runs
        runs += 1
        return runs

    await know(store, "u1")
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await until(lambda: runs >= 3)
    worker.stop()
    await running
    assert await store.get_feature("score", "u1") == runs
    await store.close()


async def test_a_handler_and_a_refresh_of_one_entity_lose_no_update(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        before = await store.get_feature("total", user_id) or 0
        await asyncio.sleep(0)
        return int(before) + 1

    @feature(entity=user, refresh="5m", materialize=True)
    async def doubled(user_id: str) -> int:
        before = await store.get_feature("total", user_id) or 0
        await asyncio.sleep(0)
        return 2 * int(before)

    await store.publish("buy", "u1")
    await store.drain()
    for _ in range(5):
        clock.advance("5m")
        await store.publish("buy", "u1")
        await store.drain()
    assert await store.get_feature("total", "u1") == 6
    clock.advance("5m")
    await store.drain()
    assert await store.get_feature("doubled", "u1") == 12


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
        ("SELECT 'u1' AS user_id, 1 AS value; SELECT 2", "several statements"),
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


async def test_ticks_are_no_events_of_the_users_log(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        return 1

    await know(store, "u1")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    assert await query(store, "SELECT event_type FROM events") == [("seen",)]


async def test_a_tick_that_is_read_late_is_run(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="1s", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1")
    await store.drain()
    runs.clear()
    engine = await runtime_of(store).open()
    for _ in range(3):
        clock.advance("1s")
        await Scheduler(engine, Outage("events")).tick()
    clock.advance("1h")
    skipped = metric("headwater_refreshes_total", feature="score", outcome="skipped")
    await store.drain()
    # Four ticks wait together by now, three late ones and that of the drain: the last one is run.
    assert runs == ["u1"]
    assert metric("headwater_refreshes_total", feature="score", outcome="skipped") > skipped


async def test_a_tick_is_passed_over_while_an_earlier_run_is_on_its_way(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="1s", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        clock.advance("10ms")
        return len(runs)

    await runtime_of(store).rebind(
        settings.replace(home=settings.home + "/one", partitions=1), clock
    )
    ids = [f"u{number:04}" for number in range(1_200)]
    await store.bus.publish_many(
        [ServiceEvent("seen", entity_id, {}, clock.now()) for entity_id in ids], dedup=False
    )
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(runs) >= 2 * len(ids))
    worker.stop()
    await running
    # Each run takes twelve intervals; the next one begins only after it has ended.
    assert runs[: len(ids)] == ids
    assert runs[len(ids) : 2 * len(ids)] == ids


async def test_a_timer_that_fires_early_loses_no_tick(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, refresh="1h", materialize=True)
    async def score(user_id: str) -> int:
        return 1

    engine = await runtime_of(store).open()
    scheduler = Scheduler(engine, Outage("events"))
    clock.advance(next_due(engine.registry.feature("score"), clock.now()) - clock.now())
    early = clock.now() - timedelta(microseconds=100)
    assert scheduler.wait(early) <= 0


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
        ("SELECT 'u1' AS user_id, 1 AS value; SELECT 2 AS value", "several statements"),
        ("SELEC user_id, 1 AS value", "syntax error"),
    ],
)
async def test_a_query_that_can_never_run_is_refused_when_the_worker_starts(
    store: FeatureStore, user: type, sql: str, problem: str
) -> None:
    @feature(entity=user, refresh="5m", materialize=True, sql=sql)
    def wrong(user_id: str) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(DeclarationError, match=rf"test_refresh.py:\d+: .*'wrong': .*{problem}"):
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


async def test_a_schedule_can_be_run_now_and_goes_on_afterwards(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1")
    await store.drain()
    before = len(runs)
    clock.advance("1m")
    await store.admin.refresh("score")
    await store.drain()
    assert len(runs) == before + 1
    clock.advance("5m")
    await store.drain()
    assert len(runs) == before + 2


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
