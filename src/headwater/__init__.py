"""Headwater: events keep features fresh, and what a model saw can later be proved."""

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
