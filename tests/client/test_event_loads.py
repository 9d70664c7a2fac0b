"""A load of events waits for a server that has no room, and says so; not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from headwater import FeatureStore, create_app, event
from headwater.client import AsyncClient
from headwater.core.logging import log
from headwater.errors import OverloadedError
from headwater.http.routes import ingest
from headwater.settings.schema import Settings
from headwater.store import event_loading
from tests.client.conftest import URL, shop
from tests.engine.support import until

ROWS = "user,amount\n" + "ada,1\n" * 12


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FeatureStore]:
    """A store in whose backlog there is room for fifteen events, which it counts each time."""
    monkeypatch.setattr(event_loading, "_BATCH_ROWS", 5)
    monkeypatch.setattr(event_loading, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ingest, "_BACKLOG_SECONDS", 0.0)
    monkeypatch.setattr(ingest, "_PAUSES_PER_COUNT", 0)
    settings = Settings().replace(home=str(tmp_path / "home"), ingest={"max_backlog": 15})
    async with shop(settings) as store:
        for _ in range(5):
            await store.publish("purchase", "ada", {"amount": 1})
        yield store


@pytest.fixture
async def limited(server: FeatureStore) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(create_app(server))
    async with AsyncClient(URL, retries=0, settings=Settings(), transport=transport) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "past.csv"
    path.write_text(ROWS)
    return path


async def _load(client: AsyncClient, file: Path) -> int:
    report = await client.bus.load(file, type="purchase", entity_id="user", timestamp=None)
    return report.published


class _Log:
    """The lines that are logged from now on."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self.text = capsys, ""

    def waits(self) -> int:
        log.flush()
        self.text += self._capsys.readouterr().err
        return self.text.count("load waits for room")


async def test_a_load_waits_until_workers_have_made_room_and_says_so_once(
    server: FeatureStore, limited: AsyncClient, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = _Log(capsys)
    loading = asyncio.create_task(_load(limited, file))
    await until(lambda: written.waits() == 1)
    assert "wait to be processed, and" in written.text
    assert not loading.done()
    await server.drain()
    assert await loading == 12
    assert written.waits() == 1


async def test_a_load_without_workers_ends_and_continues_later(
    server: FeatureStore, limited: AsyncClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loading, "_PATIENCE", {"backlog": 0.1})
    with pytest.raises(OverloadedError, match="add workers"):
        await _load(limited, file)
    await server.drain()
    assert await _load(limited, file) < 12
    await server.drain()
    assert await server.get_feature("total_spend", "ada") == 17


async def test_a_load_that_waits_can_be_cancelled(
    server: FeatureStore, limited: AsyncClient, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = _Log(capsys)
    loading = asyncio.create_task(_load(limited, file))
    await until(lambda: written.waits() == 1)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading


async def test_a_load_knows_the_decimals_and_bytes_of_the_server(
    server: FeatureStore, limited: AsyncClient, tmp_path: Path
) -> None:
    @event(server, "order")
    @dataclass
    class Order:
        amount: Decimal
        digest: bytes = b""

    columns: dict[str, Any] = {"type": "order", "entity_id": "user", "timestamp": None}
    (tmp_path / "a.csv").write_text("user,amount\nada,12345678901234567.89\n")
    duckdb.sql(
        "SELECT 'bob' AS user, 1.10::DECIMAL(9, 2) AS amount, 'ab'::BLOB AS digest"
    ).write_parquet(str(tmp_path / "a.parquet"))

    await limited.bus.load(tmp_path / "a.csv", **columns)
    await limited.bus.load(tmp_path / "a.parquet", **columns)

    logged = await server.bus.list(event_type="order")
    assert {each.event.entity_id: each.event.payload for each in logged} == {
        "ada": {"amount": "12345678901234567.89"},
        "bob": {"amount": "1.10", "digest": "YWI="},
    }
