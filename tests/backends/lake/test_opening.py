"""A lake is opened once, on first use, and says so if its catalog is away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from requests import ConnectionError as RequestFailed
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from headwater.backends.connect import connect
from headwater.backends.lake import store as lake_store
from headwater.backends.lake.store import catalog_in_postgres, open_catalog
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError
from headwater.ports import Backends
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


def test_a_database_that_is_away_is_named() -> None:
    settings = settings_of(Path("/nowhere")).replace(
        postgres={"url": "postgresql://ann:p4ss@127.0.0.1:1/d"}
    )
    with pytest.raises(BackendUnavailableError, match=AWAY) as raised:
        open_catalog(settings.lake, catalog_in_postgres(settings.postgres))
    assert "p4ss" not in str(raised.value)


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
