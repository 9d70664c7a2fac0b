"""A team starts with its past: the rows of a warehouse query are imported into history."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import duckdb
import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.core import warehouses
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.settings.schema import Settings

_MOMENT = datetime(2026, 1, 3, tzinfo=UTC)
_POSTGRES = """
SELECT 'u' || n % 10 AS user_id, n / 2.0 AS spend, timestamptz '2026-01-01Z' + n * interval '1 s'
    AS timestamp
FROM generate_series(1, {rows}) AS n -- of the past; all of it
"""


@pytest.fixture
def spend(store: FeatureStore, user: type) -> FeatureStore:
    """A store with a feature that has no history yet."""

    @feature(entity=user, trigger="purchase", default=0.0)
    def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    return store


async def value_of(store: FeatureStore, user_id: str) -> float | None:
    frame = [{"user_id": user_id, "timestamp": _MOMENT}]
    [row] = await store.get_historical_features(frame, ["spend"])
    value: float | None = row["spend"]
    return value


@pytest.mark.both_environments
async def test_history_is_imported_from_a_query_of_postgres_and_again_changes_nothing(
    spend: FeatureStore, postgres_url: str
) -> None:
    sql, seen = _POSTGRES.format(rows=2_500), []
    report = await spend.history.import_query(
        sql, ["spend"], location=postgres_url, progress=lambda *step: seen.append(step)
    )
    assert (report.rows, report.added) == (2_500, 2_500)
    assert seen[-1] == (2_500, 2_500)
    assert await value_of(spend, "u9") == 2_499 / 2
    again = await spend.history.import_query(sql, ["spend"], location=postgres_url)
    assert (again.rows, again.added) == (2_500, 0)
    more = await spend.history.import_query(
        _POSTGRES.format(rows=2_600), ["spend"], location=postgres_url
    )
    assert more.added == 100


async def test_the_values_are_those_that_a_file_with_the_same_rows_would_give(
    spend: FeatureStore, tmp_path: Path
) -> None:
    rows = "SELECT 'u1' AS user_id, 1.25 AS spend, TIMESTAMPTZ '2026-01-02 00:00:00Z' AS timestamp"
    with duckdb.connect(tmp_path / "shop.duckdb") as shop:
        shop.execute(f"CREATE TABLE totals AS {rows} UNION ALL SELECT 'u2', -0.0, now()")
        shop.execute(f"COPY totals TO '{tmp_path / 'totals.parquet'}'")
    location = tmp_path / "shop.duckdb"
    report = await spend.history.import_query("FROM totals;", ["spend"], location=location)
    assert report.added == 2
    again = await spend.history.import_file(tmp_path / "totals.parquet", ["spend"])
    assert (again.values, again.added) == (2, 0)
    assert await value_of(spend, "u1") == 1.25


async def test_a_sqlite_file_answers_queries_with_columns_of_other_names(
    spend: FeatureStore, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as app:
        app.executescript(
            "CREATE TABLE orders (who TEXT, amount REAL, at TIMESTAMP);"
            "INSERT INTO orders VALUES ('u1', 2.5, '2026-01-02 12:00:00')"
        )
    report = await spend.history.import_query(
        "SELECT who, at, sum(amount) AS amount FROM orders GROUP BY who, at",
        ["spend"],
        location=tmp_path / "app.db",
        id="who",
        value="amount",
        at="at",
        time_zone="UTC",
    )
    assert report.added == 1
    assert await value_of(spend, "u1") == 2.5


async def test_rows_of_an_adbc_driver_are_imported(
    spend: FeatureStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another real driver stands for Snowflake's, which writes names in capitals as well."""
    driver = warehouses.Driver(
        "adbc_driver_postgresql.dbapi", "x", lambda url: {"uri": postgres_url}
    )
    monkeypatch.setitem(warehouses.DRIVERS, "snowflake", driver)
    location = "snowflake://me:hunter2@account/db"
    sql = """SELECT 'u1' AS "USER_ID", 1.5::float8 AS "SPEND", now() AS "TIMESTAMP" -- once"""
    assert (await spend.history.import_query(sql, ["spend"], location=location)).added == 1
    with pytest.raises(InvalidInputError, match=r"snowflake://me:.* cannot be read") as raised:
        await spend.history.import_query("SELECT 'hunter2' + 1", ["spend"], location=location)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT * FROM nowhere", 'relation "nowhere" does not exist'),
        ("SELECT 'u1' AS user_id, 1.5 AS spend", "no column 'event_timestamp' or 'timestamp'"),
        ("SELECT 'u1' AS user_id, 1.5 AS spend, timestamp '2026-01-01' AS timestamp", "time_zone="),
    ],
)
async def test_what_is_wrong_with_a_query_is_named(
    spend: FeatureStore, postgres_url: str, sql: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem) as raised:
        await spend.history.import_query(sql, ["spend"], location=postgres_url)
    assert postgres_url not in str(raised.value)


async def test_a_value_that_does_not_fit_names_its_row(
    spend: FeatureStore, postgres_url: str
) -> None:
    sql = "SELECT 'u1' AS user_id, 'x' AS spend, now() AS timestamp"
    with pytest.raises(FeatureValueError, match='row 0: "x"'):
        await spend.history.import_query(sql, ["spend"], location=postgres_url)


async def test_a_query_can_change_nothing(
    spend: FeatureStore, postgres_url: str, production: Settings
) -> None:
    name = f"kept_{production.postgres.schema}"
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f"CREATE TABLE {name} (n int)")
    try:
        sql = f"WITH gone AS (DELETE FROM {name} RETURNING n) SELECT n FROM gone"
        with pytest.raises(InvalidInputError, match="cannot be read"):
            await spend.history.import_query(sql, ["spend"], location=postgres_url)
    finally:
        await connection.execute(f"DROP TABLE {name}")
        await connection.close()


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("lost.duckdb", "there is no file lost.duckdb"),
        ("totals.parquet", "totals.parquet runs no queries"),
        ("s3://lake/totals.parquet", "runs no queries"),
        ("mysql://me:hunter2@db", "begins with 'mysql://'"),
    ],
)
async def test_a_place_that_cannot_run_a_query_is_refused(
    spend: FeatureStore, location: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem) as raised:
        await spend.history.import_query("SELECT 1", ["spend"], location=location)
    assert "hunter2" not in str(raised.value)
