"""Headwater: features kept fresh by events, and contexts that can be verified later."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.core.platforms import check_platform

check_platform()

if TYPE_CHECKING:
    from headwater.contexts.recorded import ContextHistogram as ContextHistogram
    from headwater.contexts.recorded import ContextPage as ContextPage
    from headwater.contexts.recorded.causes import ContextCauses as ContextCauses
    from headwater.contexts.recorded.replay import Replay as Replay
    from headwater.core.durations import format_duration as format_duration
    from headwater.core.durations import parse_duration as parse_duration
    from headwater.core.values import FeatureValue as FeatureValue
    from headwater.core.values import ServiceEvent as ServiceEvent
    from headwater.declarations import Chunk as Chunk
    from headwater.declarations import ContextItem as ContextItem
    from headwater.declarations import Overrides as Overrides
    from headwater.declarations import context as context
    from headwater.declarations import retriever as retriever
    from headwater.declarations.entity_decorator import entity as entity
    from headwater.declarations.feature_decorators import feature as feature
    from headwater.declarations.feature_handles import Feature as Feature
    from headwater.declarations.graph import Graph as Graph
    from headwater.declarations.indexes import Document as Document
    from headwater.declarations.indexes import Index as Index
    from headwater.engine.worker import Worker as Worker
    from headwater.errors import FreshnessSLAError as FreshnessSLAError
    from headwater.errors import HeadwaterError as HeadwaterError
    from headwater.errors import TokenBudgetError as TokenBudgetError
    from headwater.features.reader import FeatureRow as FeatureRow
    from headwater.features.reconcile import AuditReport as AuditReport
    from headwater.features.reconcile import RebuildReport as RebuildReport
    from headwater.history.forget_report import ForgetReport as ForgetReport
    from headwater.history.import_report import ImportReport as ImportReport
    from headwater.history.one_value import HistoricalValue as HistoricalValue
    from headwater.history.retention import PruneReport as PruneReport
    from headwater.http.app import create_app as create_app
    from headwater.ports import AuditEntry as AuditEntry
    from headwater.ports import ConsumerGroup as ConsumerGroup
    from headwater.ports import ConsumerLag as ConsumerLag
    from headwater.ports import DeadLetter as DeadLetter
    from headwater.ports import EventPage as EventPage
    from headwater.ports import Health as Health
    from headwater.ports import LoggedEvent as LoggedEvent
    from headwater.ports import PublishResult as PublishResult
    from headwater.ports import RecordSummary as RecordSummary
    from headwater.ports import StoredDocument as StoredDocument
    from headwater.records.context_diff import ContextDiff as ContextDiff
    from headwater.records.lineage import ChunkLineage as ChunkLineage
    from headwater.records.lineage import Context as Context
    from headwater.records.lineage import ContextLineage as ContextLineage
    from headwater.records.lineage import ContextTrace as ContextTrace
    from headwater.records.lineage import FeatureLineage as FeatureLineage
    from headwater.records.lineage import FreshnessViolation as FreshnessViolation
    from headwater.records.lineage import InputLineage as InputLineage
    from headwater.records.lineage import ItemLineage as ItemLineage
    from headwater.records.lineage import NestedLineage as NestedLineage
    from headwater.records.lineage import PastContext as PastContext
    from headwater.records.lineage import RetrieverLineage as RetrieverLineage
    from headwater.records.record import Record as Record
    from headwater.records.verification_report import VerificationReport as VerificationReport
    from headwater.records.verify import verify_record as verify_record
    from headwater.retrieval.bulk_loading import LoadReport as LoadReport
    from headwater.retrieval.reindexing import IndexStatus as IndexStatus
    from headwater.settings.schema import Settings as Settings
    from headwater.store.audit_log import AuditPage as AuditPage
    from headwater.store.feature_store import FeatureStore as FeatureStore
    from headwater.store.letter_groups import LetterGroups as LetterGroups

_PUBLIC = {
    "contexts.recorded": ("ContextHistogram", "ContextPage"),
    "contexts.recorded.causes": ("ContextCauses",),
    "contexts.recorded.replay": ("Replay",),
    "core.durations": ("format_duration", "parse_duration"),
    "core.values": ("FeatureValue", "ServiceEvent"),
    "declarations": ("Chunk", "ContextItem", "Overrides", "context", "retriever"),
    "declarations.entity_decorator": ("entity",),
    "declarations.feature_decorators": ("feature",),
    "declarations.feature_handles": ("Feature",),
    "declarations.graph": ("Graph",),
    "declarations.indexes": ("Document", "Index"),
    "engine.worker": ("Worker",),
    "errors": ("FreshnessSLAError", "HeadwaterError", "TokenBudgetError"),
    "features.reader": ("FeatureRow",),
    "features.reconcile": ("AuditReport", "RebuildReport"),
    "history.import_report": ("ImportReport",),
    "history.one_value": ("HistoricalValue",),
    "history.forget_report": ("ForgetReport",),
    "history.retention": ("PruneReport",),
    "http.app": ("create_app",),
    "ports": (
        "AuditEntry",
        "ConsumerGroup",
        "ConsumerLag",
        "DeadLetter",
        "EventPage",
        "Health",
        "LoggedEvent",
        "PublishResult",
        "RecordSummary",
        "StoredDocument",
    ),
    "records.context_diff": ("ContextDiff",),
    "records.lineage": (
        "ChunkLineage",
        "Context",
        "ContextLineage",
        "ContextTrace",
        "FeatureLineage",
        "FreshnessViolation",
        "InputLineage",
        "ItemLineage",
        "NestedLineage",
        "PastContext",
        "RetrieverLineage",
    ),
    "records.record": ("Record",),
    "records.verification_report": ("VerificationReport",),
    "records.verify": ("verify_record",),
    "retrieval.bulk_loading": ("LoadReport",),
    "retrieval.reindexing": ("IndexStatus",),
    "settings.schema": ("Settings",),
    "store.audit_log": ("AuditPage",),
    "store.feature_store": ("FeatureStore",),
    "store.letter_groups": ("LetterGroups",),
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names}

# `from headwater import *` must not load the web framework.
__all__ = sorted(_HOMES.keys() - {"create_app"})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `headwater --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
