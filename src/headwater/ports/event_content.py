"""An event's content in a few bytes, kept with its id to tell a repetition from a conflict."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b

import msgspec

from headwater.core.codec import encode_custom
from headwater.model.values import ServiceEvent, is_time_assigned

_DIGEST_BYTES = 8
_Content = tuple[str, datetime | None, str]
"""Type, timestamp (None if the sender gave none) and digest of the payload."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Content).decode
# The order of the keys is not content: a client may write them in another order when it repeats.
_encode_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=encode_custom).encode


def event_content(event: ServiceEvent) -> bytes:
    """Return type, timestamp and digest of the payload; equal for events of equal content."""
    digest = blake2b(_encode_sorted(event.payload), digest_size=_DIGEST_BYTES).hexdigest()
    at = None if is_time_assigned(event) else event.timestamp
    return _encode((event.event_type, at, digest))


def differences(accepted: bytes, event: ServiceEvent) -> str:
    """Return how an event differs from the accepted one of its id; "" if it does not."""
    old_type, old_time, old_digest = _decode(accepted)
    new_type, new_time, new_digest = _decode(event_content(event))
    changes: list[str] = []
    if old_type != new_type:
        changes.append(f"event_type was {old_type!r}, is {new_type!r}")
    if old_time is not None and new_time is not None and old_time != new_time:
        changes.append(f"timestamp was {old_time.isoformat()}, is {new_time.isoformat()}")
    if old_digest != new_digest:
        changes.append("payload differs")
    return "; ".join(changes)
