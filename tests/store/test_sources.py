"""`store.sources`: files of SQL sources become Postgres tables that SQL features query."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import duckdb
import httpx
import pytest

from headwater import FeatureStore, create_app, entity, feature
from headwater.backends.postgres.connections import Connection
from headwater.client import AsyncClient
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.model.sources import LoadedSource, SourceColumn
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

KEY = "a key of the tests"
_ORDERS = "SELECT * FROM (VALUES ('ada', 12.5), ('bob', 4.0)) AS t (user_id, amount)"


@pytest.fixture
async def store(production: Settings, home: Path) -> AsyncIterator[FeatureStore]:
    """Yield a store on Redis and Postgres."""
    opened = FeatureStore(settings=production.replace(home=home), clock=ManualClock())
    yield opened
    await opened.close()


@pytest.fixture
async def database(production: Settings) -> AsyncIterator[Connection]:
    """Yield a connection that finds tables as the queries of features do."""
    schema = production.postgres.schema
    connection = await asyncpg.connect(
        production.postgres.url, server_settings={"search_path": f'"{schema}", public'}
    )
    yield connection
    await connection.close()


def write(file: Path, sql: str) -> Path:
    """Write the rows of a query to a file by its suffix."""
    with duckdb.connect() as duck:
        if file.suffix == ".duckdb":
            duck.execute(f"ATTACH '{file}' AS target")
            duck.execute(f"CREATE OR REPLACE TABLE target.{file.stem} AS {sql}")
        else:
            duck.execute(f"COPY ({sql}) TO '{file}'")
    return file


async def rows(database: Connection, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await database.fetch(sql)]


@pytest.mark.parametrize(
    "name", ["orders.parquet", "orders.csv", "orders.json", "orders.csv.gz", "orders.duckdb"]
)
async def test_sources_load_brings_the_files_of_sql_sources_into_postgres_tables(
    store: FeatureStore, database: Connection, home: Path, name: str
) -> None:
    store.source("orders", write(home / name, _ORDERS))
    seen: list[tuple[int, int]] = []
    loaded = await store.sources.load("orders", progress=lambda *step: seen.append(step))
    assert seen == [(2, 2)]
    schema = store.settings.postgres.schema
    assert (loaded.table, loaded.rows) == (f"{schema}.orders", 2)
    assert [column.name for column in loaded.columns] == ["user_id", "amount"]
    found = await rows(database, "SELECT user_id, amount::float FROM orders ORDER BY user_id")
    assert found == [("ada", 12.5), ("bob", 4.0)]


async def test_lines_of_json_and_tables_of_sqlite_are_loaded_as_well(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    with gzip.open(home / "refunds.jsonl.gz", "wt") as lines:
        lines.write('{"user_id": "ada", "n": 1, "tags": ["a", null]}\n{"user_id": "bob"}\n')
    with closing(sqlite3.connect(home / "app.sqlite")) as app:
        app.executescript(
            "CREATE TABLE plans (user_id TEXT, seats INT, note TEXT);"
            "INSERT INTO plans VALUES ('ada', 3, ''), ('bob', NULL, NULL)"
        )
    store.source("refunds", home / "refunds.jsonl.gz")
    store.source("plans", home / "app.sqlite")
    for name in ("refunds", "plans"):
        assert (await store.sources.load(name)).rows == 2
    found = await rows(database, "SELECT user_id, n, tags[1] FROM refunds ORDER BY user_id")
    assert found == [("ada", 1, "a"), ("bob", None, None)]
    found = await rows(database, "SELECT * FROM plans ORDER BY user_id")
    assert found == [("ada", 3, ""), ("bob", None, None)]


async def test_a_sql_feature_of_the_production_environment_queries_what_was_loaded(
    store: FeatureStore, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        refresh="1h",
        materialize=True,
        sql="SELECT user_id, sum(amount)::float AS value FROM orders GROUP BY user_id",
    )
    def ordered(user_id: str) -> float: ...  # type: ignore[empty-body]

    await store.sources.load("orders")
    await store.drain()
    assert await store.get_feature("ordered", "ada") == 12.5


async def test_every_type_of_column_keeps_its_values(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    file = write(
        home / "kinds.parquet",
        """SELECT true AS b, 1::TINYINT AS i1, 7::UBIGINT AS u8, 2::HUGEINT AS h, 1.5::FLOAT AS f,
        'nan'::DOUBLE AS d, 1.50::DECIMAL(9, 2) AS n, 'a,"b"\n' AS t, '' AS e, NULL::VARCHAR AS z,
        DATE '2026-01-31' AS day, TIME '12:30:00' AS clock,
        TIMESTAMP '2026-01-31 12:00:00.000001' AS ts, TIMESTAMPTZ '2026-01-31 12:00:00+02' AS tz,
        INTERVAL '1 day 2 hours' AS span, '\\xAA\\x00'::BLOB AS bin,
        '00000000-0000-0000-0000-000000000001'::UUID AS id,
        ['x"\\', NULL, 'NULL', ''] AS list, []::INTEGER[] AS none, {'a': 1, 'b': [1, 2]} AS nested,
        'small'::ENUM ('small', 'large') AS size""",
    )
    store.source("kinds", file)
    loaded = await store.sources.load("kinds")
    types = {column.name: column.type for column in loaded.columns}
    assert types["n"] == "numeric(9,2)"
    assert types["tz"] == "timestamp with time zone"
    assert types["list"] == "text[]"
    assert types["nested"] == "jsonb"
    [row] = await database.fetch("SELECT * FROM kinds")
    values = dict(row)
    assert str(values.pop("d")) == "nan"
    assert values == {
        "b": True, "i1": 1, "u8": Decimal(7), "h": Decimal(2), "f": 1.5, "n": Decimal("1.50"),
        "t": 'a,"b"\n', "e": "", "z": None, "day": date(2026, 1, 31), "clock": time(12, 30),
        "ts": datetime(2026, 1, 31, 12, 0, 0, 1),  # noqa: DTZ001 - has none
        "tz": datetime(2026, 1, 31, 10, tzinfo=UTC),
        "span": timedelta(days=1, hours=2), "bin": b"\xaa\x00", "id": UUID(int=1),
        "list": ['x"\\', None, "NULL", ""], "none": [], "nested": '{"a": 1, "b": [1, 2]}',
        "size": "small",
    }  # fmt: skip


async def test_loading_again_replaces_the_rows_and_keeps_indexes(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    await store.sources.load("orders")
    await database.execute("CREATE INDEX ON orders (user_id)")
    first = await store.sources.load("orders")
    assert first == await store.sources.load("orders")
    assert await database.fetchval("SELECT count(*) FROM orders") == 2
    assert (
        await database.fetchval(
            "SELECT count(*) FROM pg_index WHERE indrelid = to_regclass('orders')"
        )
        == 1
    )
    write(home / "orders.parquet", "SELECT 'eve' AS user_id, true AS paid")
    await store.sources.load("orders")
    assert await rows(database, "SELECT * FROM orders") == [("eve", True)]


async def test_readers_see_the_earlier_rows_or_the_new_ones_never_half(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    file = home / "orders.parquet"
    store.source("orders", write(file, "SELECT 0 AS version FROM range(50000)"))
    await store.sources.load("orders")
    seen: set[tuple[int, int]] = set()
    is_done = asyncio.Event()

    async def read() -> None:
        while not is_done.is_set():
            [row] = await database.fetch("SELECT count(*), max(version) FROM orders")
            seen.add(tuple(row))

    reading = asyncio.create_task(read())
    for version in range(1, 4):
        write(file, f"SELECT {version} AS version FROM range(50000)")
        await store.sources.load("orders")
    is_done.set()
    await reading
    assert {number for number, _ in seen} == {50_000}


async def test_a_reader_with_an_older_snapshot_sees_a_whole_table(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    await store.sources.load("orders")
    async with database.transaction(isolation="repeatable_read"):
        await database.fetchval("SELECT 1")  # takes the snapshot
        await store.sources.load("orders")
        assert await database.fetchval("SELECT count(*) FROM orders") == 2


@pytest.mark.parametrize("schema", ["public", ""])
async def test_a_table_that_load_has_not_made_is_never_replaced(
    store: FeatureStore, database: Connection, home: Path, schema: str
) -> None:
    name = f"own_{id(home)}"
    table = f"{schema}.{name}" if schema else name
    store.source(name, write(home / "orders.parquet", _ORDERS))
    await store.open()
    await store.sources.list()
    await database.execute(f"CREATE TABLE {table} AS SELECT 1 AS mine")
    try:
        with pytest.raises(InvalidInputError, match="was not made by `headwater sources load`"):
            await store.sources.load(name)
        assert await rows(database, f"SELECT * FROM {name}") == [(1,)]
        [source] = await store.sources.list()
        assert source.table is not None
        assert not source.table.is_loaded
    finally:
        await database.execute(f"DROP TABLE {table}")


async def test_a_load_that_fails_leaves_the_earlier_rows(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    file = write(home / "orders.parquet", _ORDERS)
    store.source("orders", file)
    await store.sources.load("orders")
    write(file, "SELECT 'a' || chr(0) AS user_id, 1.0 AS amount")
    with pytest.raises(InvalidInputError, match="source 'orders' cannot be stored in Postgres"):
        await store.sources.load("orders")
    file.write_bytes(b"not a Parquet file")
    with pytest.raises(InvalidInputError, match=r"source 'orders' .* cannot be read"):
        await store.sources.load("orders")
    assert await database.fetchval("SELECT count(*) FROM orders") == 2


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ('SELECT 1 AS "Ctid"', 'column name "ctid" conflicts with a system column'),
        (f'SELECT 1 AS "{"é" * 32}"', "names of at most 63 bytes"),
    ],
)
async def test_columns_that_postgres_does_not_allow_are_named(
    store: FeatureStore, home: Path, sql: str, problem: str
) -> None:
    store.source("orders", write(home / "orders.parquet", sql))
    with pytest.raises(InvalidInputError, match=problem):
        await store.sources.load("orders")


async def test_views_of_a_loaded_table_are_named_where_they_stop_a_load(
    store: FeatureStore, database: Connection, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    await store.sources.load("orders")
    await database.execute("CREATE VIEW big_orders AS SELECT * FROM orders")
    with pytest.raises(InvalidInputError, match="view big_orders depends on table"):
        await store.sources.load("orders")
    await database.execute("DROP VIEW big_orders")


async def test_names_with_capitals_are_found_by_queries_without_quotes(
    store: FeatureStore, home: Path
) -> None:
    store.source("Orders", write(home / "o.csv", "SELECT 'ada' AS userId, 2 AS Amount"))
    loaded = await store.sources.load("Orders")
    assert loaded.columns == [SourceColumn("userid", "text"), SourceColumn("amount", "bigint")]

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        refresh="1h",
        materialize=True,
        sql="SELECT userId AS user_id, Amount AS value FROM Orders",
    )
    def amount(user_id: str) -> int: ...  # type: ignore[empty-body]

    await store.drain()
    assert await store.get_feature("amount", "ada") == 2


async def test_sources_are_listed_with_their_features_and_tables(
    store: FeatureStore, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    store.source("away", "postgres://bob:s3cret@db.example/shop?table=public.away")

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, refresh="1h", sql="SELECT user_id, amount AS value FROM orders")
    def ordered(user_id: str) -> float: ...  # type: ignore[empty-body]

    orders, away = await store.sources.list()
    assert (orders.features, orders.table, orders.is_read_directly) == (["ordered"], None, False)
    assert away.location == "postgres://bob:***@db.example/shop?table=public.away"
    await store.sources.load("orders")
    table = (await store.sources.list())[0].table
    assert table is not None
    assert (table.rows, table.is_loaded, table.loaded_at) == (2, True, store.clock.now())


async def test_loads_are_in_the_audit_log_and_unknown_sources_are_refused(
    store: FeatureStore, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    await store.sources.load("orders")
    [entry] = (await store.audit_log(action="sources.load")).entries
    assert (entry.target, entry.outcome) == ("orders", "done")
    with pytest.raises(UnknownNameError, match="did you mean 'orders'"):
        await store.sources.load("order")


async def test_the_embedded_store_reads_files_directly(home: Path) -> None:
    store = FeatureStore(home=home / "home")
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    assert await store.sources.load("orders") == LoadedSource("orders")
    [source] = await store.sources.list()
    assert source.is_read_directly
    await store.close()


async def test_an_admin_loads_a_source_over_http_and_names_no_path(
    production: Settings, home: Path
) -> None:
    settings = production.replace(home=home, api_key=KEY)
    store = FeatureStore(settings=settings)
    store.source("orders", write(home / "orders.parquet", _ORDERS))
    transport = httpx.ASGITransport(create_app(store))
    client = AsyncClient("http://localhost", key=KEY, settings=Settings(), transport=transport)
    async with store, client:
        loaded = await client.sources.load("orders")
        assert loaded.rows == 2
        assert [column.name for column in loaded.columns] == ["user_id", "amount"]
        [source] = await client.sources.list()
        assert source.table is not None
        assert source.table.rows == 2
        with pytest.raises(UnknownNameError):
            await client.sources.load(str(home / "orders.parquet"))


async def test_a_person_stays_in_a_loaded_table_and_the_report_says_so(
    store: FeatureStore, home: Path
) -> None:
    store.source("orders", write(home / "orders.parquet", _ORDERS))

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        refresh="1h",
        materialize=True,
        sql="SELECT user_id, sum(amount)::float AS value FROM orders GROUP BY user_id",
    )
    def ordered(user_id: str) -> float: ...  # type: ignore[empty-body]

    await store.sources.load("orders")
    await store.drain()
    report = await store.admin.forget("User", "ada", reason="request 12")
    assert report.sources == ("ordered",)
    assert await store.get_feature("ordered", "ada") is None
    write(home / "orders.parquet", "SELECT 'bob' AS user_id, 4.0 AS amount")
    await store.sources.load("orders")
    assert (await store.admin.forget("User", "ada", reason="request 12")).sources == ()
