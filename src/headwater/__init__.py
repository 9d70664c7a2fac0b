"""Headwater: events keep features fresh, and what a model saw can later be proved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.contexts import Chunk, ContextItem, context, retriever
    from headwater.define import entity, feature
    from headwater.durations import format_duration, parse_duration
    from headwater.errors import FreshnessSLAError, HeadwaterError, TokenBudgetError
    from headwater.lineage import Context, ContextLineage, FeatureLineage, RetrieverLineage
    from headwater.store import FeatureStore
    from headwater.values import FeatureValue, ServiceEvent
    from headwater.worker import Worker

__all__ = [
    "Chunk",
    "Context",
    "ContextItem",
    "ContextLineage",
    "FeatureLineage",
    "FeatureStore",
    "FeatureValue",
    "FreshnessSLAError",
    "HeadwaterError",
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
    "Chunk": "contexts",
    "Context": "lineage",
    "ContextItem": "contexts",
    "ContextLineage": "lineage",
    "FeatureLineage": "lineage",
    "FeatureStore": "store",
    "FeatureValue": "values",
    "FreshnessSLAError": "errors",
    "HeadwaterError": "errors",
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
