"""Conformance suites: the promises of the ports, as tests that every backend inherits.

    class TestMyBus(BusConformance):
        @pytest.fixture
        def connect(self) -> Connect: ...

Each test states a promise of ``headwater.ports`` in the same words. The suites need pytest,
pytest-asyncio in auto mode and hypothesis. In a conftest.py,
``pytest.register_assert_rewrite("headwater.testing.conformance")`` makes their failures readable.
"""

from headwater.testing.conformance.audit import AuditLogConformance
from headwater.testing.conformance.bus import BusConformance
from headwater.testing.conformance.cache import CacheConformance
from headwater.testing.conformance.catalog import CatalogConformance
from headwater.testing.conformance.dead_letters import DeadLettersConformance
from headwater.testing.conformance.erasures import ErasuresConformance
from headwater.testing.conformance.event_pages import EventPagesConformance
from headwater.testing.conformance.exports import ExportsConformance
from headwater.testing.conformance.frames import FramesConformance
from headwater.testing.conformance.generations import GenerationsConformance
from headwater.testing.conformance.groups import ConsumerGroupsConformance
from headwater.testing.conformance.index_steps import IndexStepsConformance
from headwater.testing.conformance.leases import LeasesConformance
from headwater.testing.conformance.offline import OfflineStoreConformance
from headwater.testing.conformance.online import OnlineStoreConformance
from headwater.testing.conformance.record_lists import RecordListsConformance
from headwater.testing.conformance.records import RecordLogConformance
from headwater.testing.conformance.retention import RetentionConformance
from headwater.testing.conformance.suite import Connect
from headwater.testing.conformance.vector_searches import VectorSearchConformance
from headwater.testing.conformance.vectors import VectorIndexConformance

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
    "RecordListsConformance",
    "RecordLogConformance",
    "RetentionConformance",
    "VectorIndexConformance",
    "VectorSearchConformance",
]
