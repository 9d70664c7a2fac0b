"""What callers pass, refused where it would be misunderstood or could not be kept."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headwater.core.codec import UnstorableError, encode_exact
from headwater.core.values import INTERNAL, ServiceEvent
from headwater.declarations.feature_handles import Feature, feature_name
from headwater.errors import EventError, InvalidInputError

_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode


def check_sequences(
    features: Sequence[str | Feature[Any]], entity_ids: Sequence[str | int]
) -> list[str]:
    """Return the names of the features; refuse a string in place of a list of names or ids."""
    for values in (features, entity_ids):
        if isinstance(values, str):
            raise InvalidInputError(
                f"{reprlib.repr(values)} is a string; pass a list, such as [{reprlib.repr(values)}]"
            )
    return [name if name.__class__ is str else feature_name(name) for name in features]


def payload_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The payload of an event."""
    if given is not None and not isinstance(given, Mapping):
        raise EventError(
            f"payload is a mapping such as {{'amount': 12.5}}, not {reprlib.repr(given)}"
        )
    return dict(given or {})


def check_events(events: Sequence[ServiceEvent], latest: datetime, largest: int) -> None:
    """Refuses events that cannot be kept, come from the future or are too large."""
    if isinstance(events, ServiceEvent):
        raise EventError("publish_many takes a list; pass [event], or use store.bus.publish(event)")
    for index, event in enumerate(events):
        _check_event(event, latest, largest, index if len(events) > 1 else None)


def _check_event(event: ServiceEvent, latest: datetime, largest: int, index: int | None) -> None:
    if not isinstance(event, ServiceEvent):
        raise EventError(f"{reprlib.repr(event)} is no ServiceEvent", index)
    if event.event_type.startswith(INTERNAL):
        raise EventError(f"event types that begin with {INTERNAL!r} are reserved", index)
    if event.timestamp > latest:
        raise EventError(
            f"timestamp {event.timestamp.isoformat()} lies in the future; check the sender's clock",
            index,
        )
    try:
        size = len(encode_exact(event.payload, _decode_payload))
    except UnstorableError as error:
        raise EventError(f"payload cannot be kept: {error}", index) from error
    if size > largest:
        raise EventError(
            f"payload is {size} bytes long, more than the {largest} that an event may have; keep "
            "what is large elsewhere and send where it is",
            index,
        )
