"""Headwater: features kept fresh by events, and contexts that can be verified later."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.core.platforms import check_platform

check_platform()

if TYPE_CHECKING:
    from headwater.core.durations import format_duration as format_duration
    from headwater.core.durations import parse_duration as parse_duration
    from headwater.declarations.context_decorators import context as context
    from headwater.declarations.context_decorators import retriever as retriever
    from headwater.declarations.entity_decorator import entity as entity
    from headwater.declarations.event_decorator import event as event
    from headwater.declarations.events import Event as Event
    from headwater.declarations.feature_decorators import feature as feature
    from headwater.declarations.feature_handles import Feature as Feature
    from headwater.declarations.indexes import Index as Index
    from headwater.declarations.items import Chunk as Chunk
    from headwater.declarations.items import ContextItem as ContextItem
    from headwater.engine.worker.worker import Worker as Worker
    from headwater.errors import FreshnessSLAError as FreshnessSLAError
    from headwater.errors import HeadwaterError as HeadwaterError
    from headwater.errors import TokenBudgetError as TokenBudgetError
    from headwater.http.app import create_app as create_app
    from headwater.integrations.wrap import wrap as wrap
    from headwater.messages.parts import Blob as Blob
    from headwater.messages.parts import Message as Message
    from headwater.messages.parts import ModelRequest as ModelRequest
    from headwater.messages.parts import Reasoning as Reasoning
    from headwater.messages.parts import TextPart as TextPart
    from headwater.messages.parts import Tool as Tool
    from headwater.messages.parts import ToolCall as ToolCall
    from headwater.messages.parts import ToolResult as ToolResult
    from headwater.messages.parts import Uri as Uri
    from headwater.model.admin import AuditEntry as AuditEntry
    from headwater.model.admin import AuditPage as AuditPage
    from headwater.model.admin import AuditReport as AuditReport
    from headwater.model.admin import BackupReport as BackupReport
    from headwater.model.admin import ConsumerGroup as ConsumerGroup
    from headwater.model.admin import ConsumerLag as ConsumerLag
    from headwater.model.admin import ForgetReport as ForgetReport
    from headwater.model.admin import MentionPage as MentionPage
    from headwater.model.admin import PruneReport as PruneReport
    from headwater.model.admin import RebuildReport as RebuildReport
    from headwater.model.bound_contexts import current_context as current_context
    from headwater.model.contexts import ContextCauses as ContextCauses
    from headwater.model.contexts import ContextDiff as ContextDiff
    from headwater.model.contexts import ContextHistogram as ContextHistogram
    from headwater.model.contexts import ContextPage as ContextPage
    from headwater.model.contexts import Overrides as Overrides
    from headwater.model.contexts import RecordSummary as RecordSummary
    from headwater.model.contexts import Replay as Replay
    from headwater.model.contexts import VerificationReport as VerificationReport
    from headwater.model.dead_letters import DeadLetter as DeadLetter
    from headwater.model.dead_letters import LetterGroups as LetterGroups
    from headwater.model.dead_letters import SettledLetter as SettledLetter
    from headwater.model.declarations import Graph as Graph
    from headwater.model.events import EventLoadReport as EventLoadReport
    from headwater.model.events import EventPage as EventPage
    from headwater.model.events import LoggedEvent as LoggedEvent
    from headwater.model.events import PublishedEvent as PublishedEvent
    from headwater.model.events import PublishResult as PublishResult
    from headwater.model.features import FeatureRow as FeatureRow
    from headwater.model.features import FeatureTrial as FeatureTrial
    from headwater.model.features import HistoricalValue as HistoricalValue
    from headwater.model.health import Health as Health
    from headwater.model.history import ImportReport as ImportReport
    from headwater.model.indexes import Document as Document
    from headwater.model.indexes import IndexStatus as IndexStatus
    from headwater.model.indexes import LoadReport as LoadReport
    from headwater.model.indexes import StoredDocument as StoredDocument
    from headwater.model.lineage import ChunkLineage as ChunkLineage
    from headwater.model.lineage import Context as Context
    from headwater.model.lineage import ContextLineage as ContextLineage
    from headwater.model.lineage import ContextTrace as ContextTrace
    from headwater.model.lineage import FeatureLineage as FeatureLineage
    from headwater.model.lineage import FreshnessViolation as FreshnessViolation
    from headwater.model.lineage import InputLineage as InputLineage
    from headwater.model.lineage import ItemLineage as ItemLineage
    from headwater.model.lineage import NestedLineage as NestedLineage
    from headwater.model.lineage import PastContext as PastContext
    from headwater.model.lineage import RetrieverLineage as RetrieverLineage
    from headwater.model.outcomes import Outcome as Outcome
    from headwater.model.outcomes import OutcomeImport as OutcomeImport
    from headwater.model.outcomes import Response as Response
    from headwater.model.outcomes import Score as Score
    from headwater.model.outcomes import Usage as Usage
    from headwater.model.values import FeatureValue as FeatureValue
    from headwater.model.values import ServiceEvent as ServiceEvent
    from headwater.model.values import WindowRead as WindowRead
    from headwater.model.windows import EntityWindows as EntityWindows
    from headwater.model.windows import WindowLevel as WindowLevel
    from headwater.model.windows import WindowTile as WindowTile
    from headwater.model.windows import WindowValue as WindowValue
    from headwater.records.outcomes import OutcomeRecord as OutcomeRecord
    from headwater.records.record import Record as Record
    from headwater.records.verify import verify_record as verify_record
    from headwater.settings.schema import Settings as Settings
    from headwater.store.feature_store import FeatureStore as FeatureStore

_PUBLIC = {
    "core.durations": ("format_duration", "parse_duration"),
    "declarations.context_decorators": ("context", "retriever"),
    "declarations.entity_decorator": ("entity",),
    "declarations.event_decorator": ("event",),
    "declarations.events": ("Event",),
    "declarations.feature_decorators": ("feature",),
    "declarations.feature_handles": ("Feature",),
    "declarations.indexes": ("Index",),
    "declarations.items": ("Chunk", "ContextItem"),
    "engine.worker.worker": ("Worker",),
    "errors": ("FreshnessSLAError", "HeadwaterError", "TokenBudgetError"),
    "http.app": ("create_app",),
    "messages.parts": (
        "Blob",
        "Message",
        "ModelRequest",
        "Reasoning",
        "TextPart",
        "Tool",
        "ToolCall",
        "ToolResult",
        "Uri",
    ),
    "integrations.wrap": ("wrap",),
    "model.admin": (
        "AuditEntry",
        "AuditPage",
        "AuditReport",
        "BackupReport",
        "ConsumerGroup",
        "ConsumerLag",
        "ForgetReport",
        "MentionPage",
        "PruneReport",
        "RebuildReport",
    ),
    "model.bound_contexts": ("current_context",),
    "model.contexts": (
        "ContextCauses",
        "ContextDiff",
        "ContextHistogram",
        "ContextPage",
        "Overrides",
        "RecordSummary",
        "Replay",
        "VerificationReport",
    ),
    "model.dead_letters": ("DeadLetter", "LetterGroups", "SettledLetter"),
    "model.declarations": ("Graph",),
    "model.events": (
        "EventLoadReport",
        "EventPage",
        "LoggedEvent",
        "PublishResult",
        "PublishedEvent",
    ),
    "model.features": ("FeatureRow", "FeatureTrial", "HistoricalValue"),
    "model.health": ("Health",),
    "model.history": ("ImportReport",),
    "model.indexes": ("Document", "IndexStatus", "LoadReport", "StoredDocument"),
    "model.lineage": (
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
    "model.outcomes": ("Outcome", "OutcomeImport", "Response", "Score", "Usage"),
    "model.values": ("FeatureValue", "ServiceEvent", "WindowRead"),
    "model.windows": ("EntityWindows", "WindowLevel", "WindowTile", "WindowValue"),
    "records.outcomes": ("OutcomeRecord",),
    "records.record": ("Record",),
    "records.verify": ("verify_record",),
    "settings.schema": ("Settings",),
    "store.feature_store": ("FeatureStore",),
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
