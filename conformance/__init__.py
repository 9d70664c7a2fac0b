"""Conformance suites: the promises of the ports, as tests that every backend inherits.

    class TestMyBus(BusConformance):
        @pytest.fixture
        def connect(self) -> Connect: ...

Each test states a promise of ``headwater.ports`` in the same words. ``tests/conformance`` runs all
suites on both environments. The first call of ``connect`` opens an empty store with at least two
partitions; further calls open the same store, as another process would.
"""

from conformance.audit import AuditLogConformance
from conformance.bus import BusConformance
from conformance.cache import CacheConformance
from conformance.catalog import CatalogConformance
from conformance.dead_letters import DeadLettersConformance
from conformance.erasures import ErasuresConformance
from conformance.event_pages import EventPagesConformance
from conformance.exports import ExportsConformance
from conformance.frames import FramesConformance
from conformance.generations import GenerationsConformance
from conformance.groups import ConsumerGroupsConformance
from conformance.index_steps import IndexStepsConformance
from conformance.leases import LeasesConformance
from conformance.offline import OfflineStoreConformance
from conformance.online import OnlineStoreConformance
from conformance.outcomes import OutcomeLogConformance
from conformance.record_lists import RecordListsConformance
from conformance.records import RecordLogConformance
from conformance.retention import RetentionConformance
from conformance.suite import Connect
from conformance.vector_searches import VectorSearchConformance
from conformance.vectors import VectorIndexConformance

__all__ = [
    "AuditLogConformance",
    "BusConformance",
    "CacheConformance",
    "CatalogConformance",
    "Connect",
    "ConsumerGroupsConformance",
    "DeadLettersConformance",
    "ErasuresConformance",
    "EventPagesConformance",
    "ExportsConformance",
    "FramesConformance",
    "GenerationsConformance",
    "IndexStepsConformance",
    "LeasesConformance",
    "OfflineStoreConformance",
    "OnlineStoreConformance",
    "OutcomeLogConformance",
    "RecordListsConformance",
    "RecordLogConformance",
    "RetentionConformance",
    "VectorIndexConformance",
    "VectorSearchConformance",
]
