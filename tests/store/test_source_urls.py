"""Sources by URL: tables of another Postgres, files in S3 and on web servers, ADBC drivers."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import asyncpg
import duckdb
import httpx
import pytest
from moto.server import ThreadedMotoServer

from headwater import FeatureStore, entity, feature
from headwater.core import warehouses
from headwater.errors import DeclarationError, InvalidInputError, MissingExtraError
from headwater.settings.schema import Settings

_ROWS = "SELECT 'ada' AS user_id, 3 AS n UNION ALL SELECT 'bob', 4"


def declare(store: FeatureStore, location: str) -> None:
    """Declare a source and a feature that reads it."""
    store.source("visits", location)

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        refresh="1h",
        materialize=True,
        sql="SELECT user_id, sum(n) AS value FROM visits GROUP BY user_id",
    )
    def visited(user_id: str) -> int: ...  # type: ignore[empty-body]


async def served(store: FeatureStore) -> list[int | None]:
    """Return the values of the feature after a run; in production, load the source before."""
    await store.sources.load("visits")
    await store.drain()
    return [await store.get_feature("visited", user_id) for user_id in ("ada", "bob")]


@pytest.fixture
async def shop(postgres_url: str) -> AsyncIterator[str]:
    """Yield a URL of a table in a Postgres that is not the store's."""
    connection = await asyncpg.connect(postgres_url)
    schema = f"shop_{os.urandom(4).hex()}"
    await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.execute(f"CREATE TABLE {schema}.visits AS {_ROWS}")
    yield f"{postgres_url}?table={schema}.visits"
    await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    await connection.close()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a bucket with two files, on a server that speaks S3's protocol."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    bucket = f"http://127.0.0.1:{port}/lake"
    scope = "key/20260101/us-east-1/s3/aws4_request"
    signed = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
    }
    httpx.put(bucket, headers=signed).raise_for_status()
    for number, rows in enumerate(_ROWS.split(" UNION ALL ")):
        file = tmp_path / f"{number}.parquet"
        duckdb.sql(f"SELECT * FROM ({rows}) AS t (user_id, n)").to_parquet(str(file))
        sent = httpx.put(f"{bucket}/visits/{file.name}", content=file.read_bytes(), headers=signed)
        sent.raise_for_status()
    yield f"?s3_endpoint=127.0.0.1:{port}&s3_use_ssl=false&s3_url_style=path"
    server.stop()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a web server with a file."""
    duckdb.sql(_ROWS).to_parquet(str(tmp_path / "visits.parquet"))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/visits.parquet"
        server.shutdown()
        thread.join()


@pytest.mark.both_environments
async def test_a_source_may_be_a_table_of_another_postgres(store: FeatureStore, shop: str) -> None:
    declare(store, shop)
    assert await served(store) == [3, 4]


@pytest.mark.both_environments
async def test_a_source_may_be_parquet_files_in_s3(store: FeatureStore, lake: str) -> None:
    declare(store, f"s3://lake/visits/*.parquet{lake}")
    assert await served(store) == [3, 4]


async def test_a_source_may_be_a_file_of_a_web_server(home: Path, web: str) -> None:
    store = FeatureStore(home=home)
    declare(store, web)
    assert await served(store) == [3, 4]
    await store.close()


@pytest.mark.both_environments
@pytest.mark.parametrize("scheme", ["snowflake", "bigquery"])
async def test_a_source_may_be_a_warehouse_with_an_adbc_driver(
    store: FeatureStore, shop: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another real driver stands for those of Snowflake and BigQuery, which need an account."""
    place, _, table = shop.partition("?")
    driver = warehouses.Driver("adbc_driver_postgresql.dbapi", "x", lambda url: {"uri": place})
    monkeypatch.setitem(warehouses.DRIVERS, scheme, driver)
    declare(store, f"{scheme}://me:hunter2@account/db?{table}")
    assert await served(store) == [3, 4]


def test_urls_of_warehouses_become_the_arguments_of_their_drivers() -> None:
    snowflake = "snowflake://me:p%40ss@org-acc/DB/PUBLIC?warehouse=W&role=R&table=ORDERS"
    assert warehouses.DRIVERS["snowflake"].arguments(snowflake) == {
        "uri": "me:p%40ss@org-acc/DB/PUBLIC?warehouse=W&role=R"
    }
    assert warehouses.DRIVERS["bigquery"].arguments("bigquery://proj/sales?table=orders") == {
        "db_kwargs": {
            "adbc.bigquery.sql.project_id": "proj",
            "adbc.bigquery.sql.dataset_id": "sales",
        }
    }


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:hunter2@127.0.0.1:1/shop",
        "postgres://me:hunter2@127.0.0.1:1/shop?sslpassword=hunter2&password=hunter2",
        "http://me:hunter2@127.0.0.1:1/visits.parquet?token=hunter2",
        "snowflake://me:hunter2@127.0.0.1:1/db?account=a&protocol=http&loginTimeout=1"
        "&maxRetryCount=1&clientTimeout=1",
    ],
)
async def test_no_listing_and_no_error_shows_a_secret_of_a_url(home: Path, url: str) -> None:
    store = FeatureStore(home=home)
    declare(store, url)
    assert "hunter2" not in str(await store.sources.list())
    engine = await store._runtime.open()  # noqa: SLF001 - the query alone
    with pytest.raises(InvalidInputError) as raised:
        await engine.backends.offline.query("SELECT * FROM visits", engine.registry.sources)
    assert "hunter2" not in str(raised.value)
    assert "source 'visits'" in str(raised.value)
    with pytest.raises(DeclarationError) as refused:
        store.source("visits", "other.csv")
    assert "hunter2" not in str(refused.value)
    await store.close()


async def test_a_wrong_password_is_named_without_it(home: Path, postgres_url: str) -> None:
    store = FeatureStore(home=home)
    password = urlsplit(postgres_url).password or ""
    declare(store, postgres_url.replace(password, "hunter2"))
    engine = await store._runtime.open()  # noqa: SLF001 - the query alone
    with pytest.raises(InvalidInputError, match="password authentication failed") as raised:
        await engine.backends.offline.query("SELECT * FROM visits", engine.registry.sources)
    assert "hunter2" not in str(raised.value)
    await store.close()


def test_keys_of_s3_are_taken_from_the_environment_only(home: Path) -> None:
    store = FeatureStore(home=home)
    with pytest.raises(InvalidInputError, match="AWS_SECRET_ACCESS_KEY") as raised:
        store.source("visits", "s3://lake/visits.parquet?s3_secret_access_key=hunter2")
    assert "hunter2" not in str(raised.value)


async def test_a_url_whose_driver_is_not_installed_names_the_extra(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        warehouses.DRIVERS,
        "snowflake",
        warehouses.Driver("no_such_module", "snowflake", lambda url: {}),
    )
    store = FeatureStore(home=home)
    declare(store, "snowflake://me@account/db")
    engine = await store._runtime.open()  # noqa: SLF001 - the query alone
    with pytest.raises(MissingExtraError, match=r"headwater\[snowflake\]"):
        await engine.backends.offline.query("SELECT * FROM visits", engine.registry.sources)
    await store.close()


def test_settings_refuse_a_url_that_no_driver_reads() -> None:
    with pytest.raises(Exception, match="begins with 'mysql://'; use one of postgres://"):
        Settings().replace(sources={"visits": "mysql://me:hunter2@db/shop"})
