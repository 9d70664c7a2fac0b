"""Headwater: features kept fresh by events, and contexts that can be verified later."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.contexts.recorded import ContextPage
    from headwater.contexts.recorded.replay import Replay
    from headwater.core.durations import format_duration, parse_duration
    from headwater.core.values import FeatureValue, ServiceEvent
    from headwater.declarations import Chunk, ContextItem, Overrides, context, retriever
    from headwater.declarations.entity_decorator import entity
    from headwater.declarations.feature_decorators import feature
    from headwater.declarations.feature_handles import Feature
    from headwater.declarations.graph import Graph
    from headwater.engine.worker import Worker
    from headwater.errors import FreshnessSLAError, HeadwaterError, TokenBudgetError
    from headwater.features.reader import FeatureRow
    from headwater.features.reconcile import AuditReport, RebuildReport
    from headwater.ports import ConsumerLag, DeadLetter, Health, PublishResult, RecordSummary
    from headwater.records.diff import ContextDiff
    from headwater.records.lineage import (
        Context,
        ContextLineage,
        ContextTrace,
        FeatureLineage,
        FreshnessViolation,
        ItemLineage,
        NestedLineage,
        PastContext,
        RetrieverLineage,
    )
    from headwater.records.record import Record
    from headwater.records.verify import VerificationReport
    from headwater.settings.schema import Settings
    from headwater.store.feature_store import FeatureStore

__all__ = [
    "AuditReport",
    "Chunk",
    "ConsumerLag",
    "Context",
    "ContextDiff",
    "ContextItem",
    "ContextLineage",
    "ContextPage",
    "ContextTrace",
    "DeadLetter",
    "Feature",
    "FeatureLineage",
    "FeatureRow",
    "FeatureStore",
    "FeatureValue",
    "FreshnessSLAError",
    "FreshnessViolation",
    "Graph",
    "HeadwaterError",
    "Health",
    "ItemLineage",
    "NestedLineage",
    "Overrides",
    "PastContext",
    "PublishResult",
    "RebuildReport",
    "Record",
    "RecordSummary",
    "Replay",
    "RetrieverLineage",
    "ServiceEvent",
    "Settings",
    "TokenBudgetError",
    "VerificationReport",
    "Worker",
    "context",
    "entity",
    "feature",
    "format_duration",
    "parse_duration",
    "retriever",
]

_HOMES = {
    "AuditReport": "features.reconcile",
    "Chunk": "declarations",
    "Context": "records.lineage",
    "ContextItem": "declarations",
    "ContextLineage": "records.lineage",
    "ContextPage": "contexts.recorded",
    "ContextTrace": "records.lineage",
    "DeadLetter": "ports",
    "ContextDiff": "records.diff",
    "Feature": "declarations.feature_handles",
    "FeatureLineage": "records.lineage",
    "FeatureRow": "features.reader",
    "FeatureStore": "store.feature_store",
    "FeatureValue": "core.values",
    "FreshnessSLAError": "errors",
    "FreshnessViolation": "records.lineage",
    "Graph": "declarations.graph",
    "HeadwaterError": "errors",
    "Health": "ports",
    "ItemLineage": "records.lineage",
    "ConsumerLag": "ports",
    "NestedLineage": "records.lineage",
    "Overrides": "declarations",
    "PastContext": "records.lineage",
    "PublishResult": "ports",
    "RebuildReport": "features.reconcile",
    "Record": "records.record",
    "RecordSummary": "ports",
    "Replay": "contexts.recorded.replay",
    "VerificationReport": "records.verify",
    "RetrieverLineage": "records.lineage",
    "ServiceEvent": "core.values",
    "Settings": "settings.schema",
    "TokenBudgetError": "errors",
    "Worker": "engine.worker",
    "context": "declarations",
    "entity": "declarations.entity_decorator",
    "feature": "declarations.feature_decorators",
    "format_duration": "core.durations",
    "parse_duration": "core.durations",
    "retriever": "declarations",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `headwater --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
