"""Check arguments of callers: names, ids, payloads and events."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from headwater.core.codec import UnstorableError, encode_exact
from headwater.declarations.feature_handles import FeatureRef, check_sequences, feature_name
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import EventError, InvalidInputError
from headwater.model.values import INTERNAL, REDRIVE, ServiceEvent

_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode


def requested(registry: Registry, features: Sequence[FeatureRef]) -> list[FeatureDef]:
    """Return the definitions of features, each of which may be named once."""
    check_sequences(features, ())
    names = [feature_name(feature) for feature in features]
    if not names:
        raise InvalidInputError("name at least one feature")
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise InvalidInputError(f"feature {twice[0]!r} is named twice; name it once")
    found = [registry.feature(name) for name in names]
    for feature in found:
        feature.check_stored()
    return found


def check_events(events: Sequence[ServiceEvent], latest: datetime, largest: int) -> None:
    """Raise EventError for an event that is invalid, in the future or too large."""
    if isinstance(events, ServiceEvent):
        raise EventError("publish_many takes a list; pass [event], or use store.bus.publish(event)")
    for index, event in enumerate(events):
        _check_event(event, latest, largest, index if len(events) > 1 else None)


def _check_event(event: ServiceEvent, latest: datetime, largest: int, index: int | None) -> None:
    if not isinstance(event, ServiceEvent):
        raise EventError(f"{reprlib.repr(event)} is not a ServiceEvent", index)
    if event.event_type.startswith(INTERNAL):
        raise EventError(f"event types that begin with {INTERNAL!r} are reserved", index)
    if event.event_id.startswith(REDRIVE):
        raise EventError(
            f"event_id {event.event_id!r} is reserved: ids that begin with {REDRIVE!r} belong to "
            "redriven dead letters; choose another id",
            index,
        )
    if event.timestamp > latest:
        raise EventError(
            f"timestamp {event.timestamp.isoformat()} is in the future; check the sender's clock",
            index,
        )
    try:
        size = len(encode_exact(event.payload, _decode_payload))
    except UnstorableError as error:
        raise EventError(f"payload cannot be stored: {error}", index) from error
    if size > largest:
        raise EventError(
            f"payload has {size} bytes, more than the maximum of {largest}; store large "
            "data elsewhere and send a reference",
            index,
        )
