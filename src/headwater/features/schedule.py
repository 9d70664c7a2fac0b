"""When a scheduled feature is due, and the events of its ticks. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headwater.core.schedules import Schedule
from headwater.declarations.features import FeatureDef
from headwater.errors import InvalidInputError
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import Tick

REFRESH = f"{INTERNAL}refresh"


class Due(msgspec.Struct, frozen=True):
    """The payload of a tick: the feature, its due time, and the last entity that is done.

    A tick that continues a run belongs to the consumer group that began the run.
    """

    feature: str
    due: datetime
    after: str = ""
    group: str = ""


def last_due(feature: FeatureDef, now: datetime) -> datetime:
    """Return the latest due time that is not after now."""
    return _schedule(feature).last_due(feature.name, now)


def next_due(feature: FeatureDef, now: datetime) -> datetime:
    """Return the first due time after now."""
    return _schedule(feature).next_due(feature.name, now)


def make_tick(feature: FeatureDef, now: datetime) -> Tick:
    """Return the tick of the latest due time; missed ticks before it are skipped."""
    return _tick(feature, last_due(feature, now), now)


def tick_now(feature: FeatureDef, now: datetime) -> Tick:
    """Return a tick that is due now; raise InvalidInputError if the feature has no schedule."""
    if feature.refresh is None:
        raise InvalidInputError(
            f"feature {feature.name!r} has no schedule; only features with refresh= can be "
            "refreshed"
        )
    return _tick(feature, now, now)


def _tick(feature: FeatureDef, at: datetime, now: datetime) -> Tick:
    due = Due(feature.name, at)
    return Tick(feature.name, at, _schedule(feature), event_of(due, now), feature.sql is None)


def event_of(due: Due, now: datetime) -> ServiceEvent:
    """Return the event of a tick; its id is the same in every worker."""
    event_id = f"refresh:{due.feature}:{due.due.isoformat()}"
    if due.after:
        event_id += f":{due.group}:{due.after}"
    return ServiceEvent(REFRESH, due.feature, msgspec.to_builtins(due), now, event_id)


def due_of(event: ServiceEvent) -> Due:
    """Return the payload of a tick's event."""
    return msgspec.convert(event.payload, Due)


def _schedule(feature: FeatureDef) -> Schedule:
    if feature.refresh is None:
        raise ValueError(f"feature {feature.name!r} is not scheduled")
    return feature.refresh
