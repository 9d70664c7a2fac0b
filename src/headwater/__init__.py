"""Headwater: events keep features fresh, and what a model saw can later be proved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.define import entity, feature
    from headwater.durations import format_duration, parse_duration
    from headwater.errors import HeadwaterError
    from headwater.store import FeatureStore
    from headwater.values import FeatureValue, ServiceEvent
    from headwater.worker import Worker

__all__ = [
    "FeatureStore",
    "FeatureValue",
    "HeadwaterError",
    "ServiceEvent",
    "Worker",
    "entity",
    "feature",
    "format_duration",
    "parse_duration",
]

_HOMES = {
    "FeatureStore": "store",
    "FeatureValue": "values",
    "HeadwaterError": "errors",
    "ServiceEvent": "values",
    "Worker": "worker",
    "entity": "define",
    "feature": "define",
    "format_duration": "durations",
    "parse_duration": "durations",
}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: `headwater --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
