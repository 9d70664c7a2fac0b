"""Redis and Postgres keep every promise of the ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import asyncpg
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
from conformance.suite import Suite
from headwater.model.values import ServiceEvent
from headwater.settings.schema import Settings
from tests.cluster import MASTERS, keys_of_masters
from tests.conformance.openings import openings
from tests.kafka import Brokers, on_kafka


class Production(Suite):
    """Return a function that opens the same store each time."""

    @pytest.fixture
    async def connect(self, production: Settings) -> AsyncIterator[Connect]:
        async with openings(production.replace(partitions=6)) as connect:
            yield connect


class TestRedisBus(Production, BusConformance):
    """The log of events in Redis Streams."""


class TestRedisLeases(Production, LeasesConformance):
    """Heartbeats and leases."""


class TestRedisGroups(Production, ConsumerGroupsConformance):
    """Consumer groups of the streams."""


class TestRedisDeadLetters(Production, DeadLettersConformance):
    """Dead letters in a stream."""


class TestRedisCatalog(Production, CatalogConformance):
    """One key in Redis, with a copy in Postgres."""


class TestRedisOnlineStore(Production, OnlineStoreConformance):
    """Current values, packed."""


class TestPostgresOfflineStore(Production, OfflineStoreConformance):
    """History and events in tables, fed by the outbox."""

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


class TestPostgresEventPages(Production, EventPagesConformance):
    """The event log in Postgres, followed."""


class TestPostgresExports(Production, ExportsConformance):
    """Parquet files of history and events."""


class TestPostgresFrames(Production, FramesConformance):
    """Point-in-time reads with LATERAL joins."""


class TestPostgresRetention(Production, RetentionConformance):
    """Old rows are removed from Postgres."""


class TestPostgresRecordLog(Production, RecordLogConformance):
    """Records of contexts in Postgres."""


class TestPostgresOutcomeLog(Production, OutcomeLogConformance):
    """Outcomes of contexts in Postgres."""


class TestPostgresRecordLists(Production, RecordListsConformance):
    """Records of contexts in Postgres, listed and searched."""


class TestPostgresAuditLog(Production, AuditLogConformance):
    """Administrative actions in Postgres."""


class TestPostgresVectorIndex(Production, VectorIndexConformance):
    """Documents in Postgres, those of batches through the outbox."""


class TestPostgresGenerations(Production, GenerationsConformance):
    """Generations of indexes in Postgres."""


class TestPostgresVectorSearch(Production, VectorSearchConformance):
    """Searches with pgvector."""


class TestRedisCache(Production, CacheConformance):
    """A cache in Redis."""


class Cluster(Production):
    """The same suites with a cluster of three masters."""

    @pytest.fixture
    def production(self, cluster_url: str, production: Settings) -> Settings:
        return production.replace(redis={"url": cluster_url})


class TestClusterPartitions(Cluster):
    """The partitions of a store over three masters."""

    async def test_every_master_owns_partitions(self, connect: Connect, cluster_url: str) -> None:
        backends = await connect()
        events = [ServiceEvent("click", f"u{number}", {"number": number}) for number in range(100)]
        await backends.bus.publish(events, dedup_window=None)
        counts = await asyncio.to_thread(keys_of_masters, cluster_url, "*:events")
        assert len(counts) == MASTERS
        assert all(counts)


class TestClusterBus(Cluster, BusConformance):
    """The log of events over three masters."""


class TestClusterLeases(Cluster, LeasesConformance):
    """Heartbeats and leases over three masters."""


class TestClusterGroups(Cluster, ConsumerGroupsConformance):
    """Consumer groups over three masters."""


class TestClusterDeadLetters(Cluster, DeadLettersConformance):
    """Dead letters of all masters in a stream of one."""


class TestClusterOnlineStore(Cluster, OnlineStoreConformance):
    """Current values over three masters."""


class TestClusterOfflineStore(Cluster, TestPostgresOfflineStore):
    """History fed by the outboxes of three masters."""


class TestClusterVectorIndex(Cluster, VectorIndexConformance):
    """Documents in Postgres, fed by the outboxes of three masters."""


class TestClusterCache(Cluster, CacheConformance):
    """A cache over three masters."""


class Kafka(Production):
    """The suites of events with their log in a topic of Kafka."""

    @pytest.fixture
    async def connect(self, production: Settings, kafka: Brokers) -> AsyncIterator[Connect]:
        async with openings(on_kafka(production, kafka.new_topic())) as connect:
            yield connect


class TestKafkaBus(Kafka, BusConformance):
    """The log of events in a topic, and the newest of them in Redis Streams."""


class TestKafkaGroups(Kafka, ConsumerGroupsConformance):
    """Consumer groups of the streams that a topic feeds."""


class TestKafkaDeadLetters(Kafka, DeadLettersConformance):
    """Dead letters of events from a topic."""


class TestKafkaErasures(Kafka, ErasuresConformance):
    """Erased entities, whose events are not taken from a topic."""


class TestKafkaEventPages(Kafka, EventPagesConformance):
    """The event log in Postgres, with events from a topic."""


class TestPostgresIndexSteps(Production, IndexStepsConformance):
    """Operations on an index in any order."""


class TestServerErasures(Production, ErasuresConformance):
    """The ledger in Redis and Postgres."""


class TestClusterErasures(Cluster, ErasuresConformance):
    """The ledger in Postgres and in every master of a cluster."""
