"""Ticks: when a scheduled feature is due, and the event that says so. Pure."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta

import msgspec

from headwater.core.clock import EPOCH
from headwater.core.values import INTERNAL, ServiceEvent
from headwater.declarations.features import FeatureDef
from headwater.ports import Tick

REFRESH = f"{INTERNAL}refresh"
_SPREAD = 0.1
_LONGEST_SPREAD = timedelta(seconds=30)


class Due(msgspec.Struct, frozen=True):
    """What a tick's event carries: which feature, when, and after which entity to go on.

    A portion that goes on belongs to the consumer group that began the run.
    """

    feature: str
    due: datetime
    after: str = ""
    group: str = ""


def last_due(feature: FeatureDef, now: datetime) -> datetime:
    """The latest moment, not after now, at which the feature was due.

    Due times are multiples of the interval, so every worker knows the same ones without asking,
    moved by a share of the interval that the feature's name decides, so that not all are due at
    once.
    """
    interval = _interval(feature)
    spread = min(interval * _SPREAD, _LONGEST_SPREAD)
    offset = spread * (zlib.crc32(feature.name.encode()) / 2**32)
    return now - (now - EPOCH - offset) % interval


def next_due(feature: FeatureDef, now: datetime) -> datetime:
    """The first moment after now at which the feature is due."""
    return last_due(feature, now) + _interval(feature)


def make_tick(feature: FeatureDef, now: datetime) -> Tick:
    """The tick of the latest due time; ticks missed before it coalesce into this one."""
    due = Due(feature.name, last_due(feature, now))
    return Tick(feature.name, due.due, _interval(feature), event_of(due, now), feature.sql is None)


def event_of(due: Due, now: datetime) -> ServiceEvent:
    """The event of a tick or of one of its portions, with the same id whoever makes it."""
    event_id = f"refresh:{due.feature}:{due.due.isoformat()}"
    if due.after:
        event_id += f":{due.group}:{due.after}"
    return ServiceEvent(REFRESH, due.feature, msgspec.to_builtins(due), now, event_id)


def due_of(event: ServiceEvent) -> Due:
    """What a tick's event carries."""
    return msgspec.convert(event.payload, Due)


def _interval(feature: FeatureDef) -> timedelta:
    if feature.refresh is None:
        raise ValueError(f"feature {feature.name!r} is not scheduled")
    return feature.refresh
