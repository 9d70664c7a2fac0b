"""A lake is opened once, on first use, and says so if its catalog is away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from msgspec.structs import replace
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from requests import ConnectionError as RequestFailed
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from headwater.backends.connect import connect
from headwater.backends.lake import store as lake_store
from headwater.backends.lake.store import catalog_in_postgres, open_catalog
from headwater.core.clock import SystemClock
from headwater.core.masking import FileText
from headwater.errors import BackendUnavailableError
from headwater.ports import Backends
from headwater.settings.groups import LakeSettings
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of, settings_of
from tests.engine.support import until

AWAY = "the catalog of the lake failed: .*; check lake.catalog, or the database of the store"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Catalog]:
    """Return the catalogs that a test opens."""
    catalogs: list[Catalog] = []

    def noted(*args: Any) -> Catalog:
        catalogs.append(open_catalog(*args))
        return catalogs[-1]

    monkeypatch.setattr(lake_store, "open_catalog", noted)
    return catalogs


@pytest.fixture
async def backends(tmp_path: Path) -> AsyncIterator[Backends]:
    connected = await connect(settings_of(tmp_path), SystemClock())
    yield connected
    await connected.lifecycle.close()


async def test_the_catalog_in_a_home_is_closed_with_it(
    tmp_path: Path, opened: list[Catalog]
) -> None:
    connected = await connect(settings_of(tmp_path), SystemClock())
    assert connected.lake is not None
    await connected.lake()
    (catalog,) = opened
    assert isinstance(catalog, SqlCatalog)
    before = catalog.engine.pool
    assert isinstance(before, QueuePool)
    assert before.checkedin()
    await connected.lifecycle.close()
    assert not before.checkedin()


async def test_callers_that_are_first_at_once_open_one_catalog(
    backends: Backends, opened: list[Catalog]
) -> None:
    assert backends.lake is not None
    one, other = await asyncio.gather(backends.lake(), backends.lake())
    assert one is other
    assert len(opened) == 1


async def test_a_cancelled_first_caller_leaves_its_catalog_to_the_next(
    backends: Backends, opened: list[Catalog]
) -> None:
    assert backends.lake is not None
    first = asyncio.ensure_future(backends.lake())
    await until(lambda: bool(opened))
    first.cancel()
    await backends.lake()
    await asyncio.gather(first, return_exceptions=True)
    assert len(opened) == 1


async def test_a_catalog_that_is_being_opened_is_closed_with_its_store(
    tmp_path: Path, production: Settings, opened: list[Catalog]
) -> None:
    settings = production.replace(home=tmp_path / "home", lake={"url": str(tmp_path / "lake")})
    connected = await connect(settings, SystemClock())
    assert connected.lake is not None
    first = asyncio.ensure_future(connected.lake())
    await until(lambda: bool(opened))
    first.cancel()
    await connected.lifecycle.close()
    (catalog,) = opened
    assert isinstance(catalog, SqlCatalog)
    pool = catalog.engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.checkedin() == pool.checkedout() == 0


def test_a_database_that_is_away_is_named() -> None:
    settings = settings_of(Path("/nowhere")).replace(
        postgres={"url": "postgresql://ann:p4ss@127.0.0.1:1/d"}
    )
    with pytest.raises(BackendUnavailableError, match=AWAY) as raised:
        open_catalog(settings.lake, catalog_in_postgres(settings.postgres))
    assert "p4ss" not in str(raised.value)


async def test_the_catalog_follows_the_file_of_a_password(
    production: Settings, tmp_path: Path
) -> None:
    role, file = f"{production.postgres.schema}_lake", tmp_path / "password"
    place = urlsplit(production.postgres.url)
    url = place._replace(netloc=f"{role}@{place.hostname}:{place.port}").geturl()
    file.write_text("first")
    postgres = replace(production.postgres, url=url, password=FileText.of("first", file))
    admin = await asyncpg.connect(production.postgres.url)
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'first'")
    address, lake = catalog_in_postgres(postgres), LakeSettings(url=str(tmp_path))
    with closing(open_catalog(lake, address, postgres, create=False)) as catalog:
        assert isinstance(catalog, SqlCatalog)
        for password in ("first", "second"):
            await admin.execute(f"ALTER ROLE {role} PASSWORD '{password}'")
            file.write_text(password)
            catalog.engine.dispose()
            with catalog.engine.connect() as connection:
                assert connection.exec_driver_sql("SELECT current_user").scalar() == role
    await admin.execute(f"DROP ROLE {role}")
    await admin.close()


def test_a_database_that_does_not_answer_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = settings_of(Path("/nowhere")).replace(
            postgres={
                "url": f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/d",
                "connect_timeout": 1,
            }
        )
        with pytest.raises(OperationalError, match="timeout"):
            create_engine(catalog_in_postgres(settings.postgres)).connect()


async def test_a_rest_catalog_that_is_away_is_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path).replace(lake={"catalog": "http://127.0.0.1:1"})
    connected = await connect(settings, SystemClock())
    assert connected.lake is not None
    with pytest.raises(BackendUnavailableError, match=AWAY):
        await connected.lake()
    await connected.lifecycle.close()


async def test_a_rest_catalog_that_goes_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RequestFailed("connection refused")

    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        for table in store.tables.values():
            monkeypatch.setattr(table, "load", failing)
        with pytest.raises(BackendUnavailableError, match=AWAY):
            await store.status()
