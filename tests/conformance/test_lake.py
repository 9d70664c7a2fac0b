"""A lake keeps every promise of an offline store, with either tail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import asyncpg
import pytest

from conformance import (
    Connect,
    EventPagesConformance,
    ExportsConformance,
    FramesConformance,
    OfflineStoreConformance,
    RetentionConformance,
)
from conformance.suite import Suite
from headwater.settings.schema import Settings
from tests.conformance.openings import openings


class Lake(Suite):
    """A home whose history is in a lake on a folder."""

    @pytest.fixture
    async def connect(self, tmp_path: Path) -> AsyncIterator[Connect]:
        settings = Settings().replace(
            home=tmp_path / "home",
            partitions=4,
            offline={"segment_rows": 4},
            lake={"url": str(tmp_path / "lake")},
        )
        async with openings(settings) as connect:
            yield connect


class TestLakeOfflineStore(Lake, OfflineStoreConformance):
    """History and events in Iceberg tables and SQLite's tail."""

    @pytest.fixture
    def orders(self, tmp_path: Path) -> Mapping[str, str]:
        file = tmp_path / "orders.csv"
        file.write_text("user_id,amount\nu1,1\nu1,2\nu2,5\n")
        return {"orders": str(file)}


class TestLakeFrames(Lake, FramesConformance):
    """ASOF joins over the files of the lake and the tail."""


class TestLakeEventPages(Lake, EventPagesConformance):
    """The event log, followed."""


class TestLakeExports(Lake, ExportsConformance):
    """Parquet files of history and events."""


class TestLakeRetention(Lake, RetentionConformance):
    """Old rows removed from the files of the lake and from the tail."""


class ServerLake(Suite):
    """A store on servers whose history is in a lake on a folder."""

    @pytest.fixture
    async def connect(self, tmp_path: Path, production: Settings) -> AsyncIterator[Connect]:
        settings = production.replace(
            home=tmp_path / "home",
            partitions=4,
            offline={"segment_rows": 4, "segment_grace": "1ms"},
            lake={"url": str(tmp_path / "lake")},
        )
        async with openings(settings) as connect:
            yield connect


class TestServerLakeOfflineStore(ServerLake, OfflineStoreConformance):
    """History and events in Iceberg tables and Postgres's tail; other queries in Postgres."""

    @pytest.fixture
    async def orders(self, connect: Connect, production: Settings) -> Mapping[str, str]:
        await connect()
        database = await asyncpg.connect(production.postgres.url)
        table = f"{production.postgres.schema}.orders"
        await database.execute(
            f"CREATE TABLE {table} (user_id text, amount int);"
            f"INSERT INTO {table} VALUES ('u1', 1), ('u1', 2), ('u2', 5)"
        )
        await database.close()
        return {"orders": "a table of that name"}


class TestServerLakeFrames(ServerLake, FramesConformance):
    """Frames of a lake whose tail is Postgres."""


class TestServerLakeEventPages(ServerLake, EventPagesConformance):
    """The event log in Postgres, followed."""


class TestServerLakeExports(ServerLake, ExportsConformance):
    """Parquet files of history and events."""


class TestServerLakeRetention(ServerLake, RetentionConformance):
    """Old rows removed from the files of the lake and from Postgres."""
