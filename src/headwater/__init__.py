"""Headwater: events keep features fresh, and what a model saw can later be proved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.contexts import Chunk, ContextItem, Overrides, context, retriever
    from headwater.define import entity, feature
    from headwater.durations import format_duration, parse_duration
    from headwater.errors import FreshnessSLAError, HeadwaterError, TokenBudgetError
    from headwater.evidence import ContextPage
    from headwater.graph import Graph
    from headwater.lineage import (
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
    from headwater.ports import DeadLetter, Health, Lag, Published, RecordSummary
    from headwater.record.diff import Diff
    from headwater.record.parts import Record
    from headwater.record.replay import Replay
    from headwater.record.verify import Report
    from headwater.repair import Audit, Rebuilt
    from headwater.store import FeatureStore
    from headwater.values import FeatureValue, ServiceEvent
    from headwater.worker import Worker

__all__ = [
    "Audit",
    "Chunk",
    "Context",
    "ContextItem",
    "ContextLineage",
    "ContextPage",
    "ContextTrace",
    "DeadLetter",
    "Diff",
    "FeatureLineage",
    "FeatureStore",
    "FeatureValue",
    "FreshnessSLAError",
    "FreshnessViolation",
    "Graph",
    "HeadwaterError",
    "Health",
    "ItemLineage",
    "Lag",
    "NestedLineage",
    "Overrides",
    "PastContext",
    "Published",
    "Rebuilt",
    "Record",
    "RecordSummary",
    "Replay",
    "Report",
    "RetrieverLineage",
    "ServiceEvent",
    "TokenBudgetError",
    "Worker",
    "context",
    "entity",
    "feature",
    "format_duration",
    "parse_duration",
    "retriever",
]

_HOMES = {
    "Audit": "repair",
    "Chunk": "contexts",
    "Context": "lineage",
    "ContextItem": "contexts",
    "ContextLineage": "lineage",
    "ContextPage": "evidence",
    "ContextTrace": "lineage",
    "DeadLetter": "ports",
    "Diff": "record.diff",
    "FeatureLineage": "lineage",
    "FeatureStore": "store",
    "FeatureValue": "values",
    "FreshnessSLAError": "errors",
    "FreshnessViolation": "lineage",
    "Graph": "graph",
    "HeadwaterError": "errors",
    "Health": "ports",
    "ItemLineage": "lineage",
    "Lag": "ports",
    "NestedLineage": "lineage",
    "Overrides": "contexts",
    "PastContext": "lineage",
    "Published": "ports",
    "Rebuilt": "repair",
    "Record": "record.parts",
    "RecordSummary": "ports",
    "Replay": "record.replay",
    "Report": "record.verify",
    "RetrieverLineage": "lineage",
    "ServiceEvent": "values",
    "TokenBudgetError": "errors",
    "Worker": "worker",
    "context": "contexts",
    "entity": "define",
    "feature": "define",
    "format_duration": "durations",
    "parse_duration": "durations",
    "retriever": "contexts",
}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: `headwater --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
