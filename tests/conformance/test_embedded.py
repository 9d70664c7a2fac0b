"""The embedded backends keep every promise of the ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from conformance import (
    AuditLogConformance,
    BusConformance,
    CacheConformance,
    CatalogConformance,
    Connect,
    ConsumerGroupsConformance,
    DeadLettersConformance,
    ErasuresConformance,
    EventPagesConformance,
    ExportsConformance,
    FramesConformance,
    GenerationsConformance,
    IndexStepsConformance,
    LeasesConformance,
    OfflineStoreConformance,
    OnlineStoreConformance,
    OutcomeLogConformance,
    RecordListsConformance,
    RecordLogConformance,
    RetentionConformance,
    VectorIndexConformance,
    VectorSearchConformance,
)
from conformance.frames import Reading
from conformance.suite import Opened, Suite
from headwater.backends.duckdb.exported_history import ExportedHistory
from headwater.backends.duckdb.history_export import HistoryExport
from headwater.ports import FrameReader
from headwater.settings.schema import Settings
from tests.conformance.openings import openings


class Embedded(Suite):
    """Return a function that opens the same home each time."""

    @pytest.fixture
    async def connect(self, tmp_path: Path) -> AsyncIterator[Connect]:
        settings = Settings().replace(home=tmp_path, partitions=4, offline={"segment_rows": 4})
        async with openings(settings) as connect:
            yield connect


class TestSqliteBus(Embedded, BusConformance):
    """The log of events in SQLite."""


class TestSqliteLeases(Embedded, LeasesConformance):
    """Locked files and leases."""


class TestSqliteGroups(Embedded, ConsumerGroupsConformance):
    """Consumer groups in SQLite."""


class TestSqliteDeadLetters(Embedded, DeadLettersConformance):
    """Dead letters in SQLite."""


class TestSqliteCatalog(Embedded, CatalogConformance):
    """One row in SQLite."""


class TestSqliteOnlineStore(Embedded, OnlineStoreConformance):
    """Current values in SQLite."""


class TestDuckdbOfflineStore(Embedded, OfflineStoreConformance):
    """History and events in Parquet segments and SQLite's tail."""

    @pytest.fixture
    def orders(self, tmp_path: Path) -> Mapping[str, str]:
        file = tmp_path / "orders.csv"
        file.write_text("user_id,amount\nu1,1\nu1,2\nu2,5\n")
        return {"orders": str(file)}


class TestDuckdbFrames(Embedded, FramesConformance):
    """ASOF joins over segments and tail."""


class TestExportedFrames(Embedded, FramesConformance):
    """The same ASOF joins over exported files."""

    @pytest.fixture
    def reading(self, tmp_path: Path) -> Reading:
        async def exported(store: Opened) -> FrameReader:
            now = datetime.now(UTC)
            await HistoryExport(store.offline, store.catalog.load, tmp_path / "export", now).run()
            return ExportedHistory(tmp_path / "export")

        return exported


class TestSqliteEventPages(Embedded, EventPagesConformance):
    """The event log in SQLite, followed."""


class TestDuckdbExports(Embedded, ExportsConformance):
    """Parquet files of history and events."""


class TestSqliteRecordLog(Embedded, RecordLogConformance):
    """Records of contexts in SQLite."""


class TestSqliteOutcomeLog(Embedded, OutcomeLogConformance):
    """Outcomes of contexts in SQLite."""


class TestSqliteRecordLists(Embedded, RecordListsConformance):
    """Records of contexts in SQLite, listed and searched."""


class TestSqliteAuditLog(Embedded, AuditLogConformance):
    """Administrative actions in SQLite."""


class TestSqliteCache(Embedded, CacheConformance):
    """A cache in SQLite."""


class TestSqliteVectorIndex(Embedded, VectorIndexConformance):
    """Documents of indexes in SQLite."""


class TestSqliteGenerations(Embedded, GenerationsConformance):
    """Generations of indexes in SQLite."""


class TestSqliteVectorSearch(Embedded, VectorSearchConformance):
    """Searches with NumPy and FTS5."""


class TestSqliteIndexSteps(Embedded, IndexStepsConformance):
    """Operations on an index in any order."""


class TestEmbeddedRetention(Embedded, RetentionConformance):
    """Old rows removed from segments, from SQLite's tail and from the record log."""


class TestSqliteErasures(Embedded, ErasuresConformance):
    """The ledger in SQLite."""
