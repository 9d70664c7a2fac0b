"""Events as records of a topic: our own, and records of other producers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from headwater.core.codec import encode_custom
from headwater.errors import BackendUnavailableError, ConfigError, EventError, HeadwaterError
from headwater.model.values import INTERNAL, REDRIVE, ServiceEvent, without_assigned_time
from headwater.ports import FeedRecord, event_content

Decode = Callable[[bytes, Mapping[str, bytes]], "ServiceEvent | Mapping[str, Any] | None"]
"""Makes an event of a record and its headers; None leaves it out."""

_OURS, _AWAITED = "headwater", "headwater-awaited"
"""Headers: the content by which a repetition is recognized, and the mark of an awaited event."""

_MOST_BYTES = 4_000_000

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode
_decode_event = msgspec.json.Decoder(ServiceEvent).decode


class KafkaRecord(NamedTuple):
    """A record as a topic has it."""

    log: str
    """The identity of the topic: one that was created again is another."""
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    timestamp: int
    """Milliseconds; negative if it has none."""

    @property
    def name(self) -> str:
        """An id that no other record has."""
        return f"{self.log}-{self.partition}-{self.offset}"


def encode(record: FeedRecord) -> tuple[bytes, bytes, list[tuple[str, str | bytes | None]]]:
    """Return the key, the value and the headers of the record of an event."""
    event = record.event
    assert event is not None
    headers: list[tuple[str, str | bytes | None]] = [(_OURS, record.content)]
    if record.awaited:
        headers.append((_AWAITED, b"1"))
    return event.entity_id.encode(), _encode(without_assigned_time(event)), headers


def in_portions(records: Sequence[KafkaRecord]) -> Iterator[list[KafkaRecord]]:
    """Yield records in order, in portions that a store takes at once."""
    portion: list[KafkaRecord] = []
    size = 0
    for record in records:
        size += len(record.value or b"")
        if portion and size > _MOST_BYTES:
            yield portion
            portion, size = [], len(record.value or b"")
        portion.append(record)
    if portion:
        yield portion


class RecordDecoder:
    """Makes events of records."""

    def __init__(self, fields: Mapping[str, str], function: str = "") -> None:
        self._fields = fields
        self._decode: Decode = load_decoder(function) if function else self._decode_json

    async def decode(self, records: Sequence[KafkaRecord], latest: datetime) -> list[FeedRecord]:
        """Return records with their events or problems, except records that are left out.

        ``latest`` is the latest time that an event of another producer may have. A user's function
        may ask a schema registry, so it runs in a thread.

        Raises:
            BackendUnavailableError: the function raised an OSError, such as ConnectionError.
        """
        made = await asyncio.to_thread(lambda: [self._made(each, latest) for each in records])
        return [each for each in made if each is not None]

    def _made(self, record: KafkaRecord, latest: datetime) -> FeedRecord | None:
        if _OURS in record.headers:
            try:
                event = _decode_event(record.value or b"")
            except (msgspec.MsgspecError, EventError, UnicodeDecodeError) as error:
                return _problem(record, str(error))
            awaited = _AWAITED in record.headers
            return FeedRecord(record.offset, event, record.headers[_OURS], awaited)
        try:
            made = self._decode(record.value or b"", record.headers)
            if made is None:
                return None
            event = made if isinstance(made, ServiceEvent) else self._event(record, made)
            _check(event, latest)
        except OSError as error:
            raise BackendUnavailableError(
                f"record {record.name} is not decoded: {error}"
            ) from error
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return _problem(record, f"{type(error).__name__}: {error}")
        return FeedRecord(record.offset, event, event_content(event))

    def _decode_json(self, value: bytes, _headers: Mapping[str, bytes]) -> Mapping[str, Any] | None:
        if not value:
            return None  # the mark of a deleted key in a compacted topic
        try:
            decoded = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise EventError(f"it is not JSON ({error}); set bus.decode for other forms") from error
        if not isinstance(decoded, dict):
            raise EventError(f"it is a JSON {type(decoded).__name__}, not an object")
        return decoded

    def _event(self, record: KafkaRecord, made: Mapping[str, Any]) -> ServiceEvent:
        names = {name: self._fields.get(name, name) for name in ServiceEvent.__struct_fields__[:5]}
        values = {name: made[named] for name, named in names.items() if named in made}
        if "payload" not in values:
            # A flat object: what is not named is the payload.
            values["payload"] = {k: v for k, v in made.items() if k not in names.values()}
        if "event_type" not in values:
            raise EventError(f"it has no field {names['event_type']!r}; see bus.fields")
        if "entity_id" not in values:
            if record.key is None:
                raise EventError(f"it has neither a field {names['entity_id']!r} nor a key")
            values["entity_id"] = record.key.decode()
        if type(values["entity_id"]) is int:
            values["entity_id"] = str(values["entity_id"])
        at = values.get("timestamp", record.timestamp / 1_000 if record.timestamp >= 0 else None)
        values["timestamp"] = _time(at)
        values.setdefault("event_id", record.name)
        return ServiceEvent(**values)


def _time(at: Any) -> datetime:
    if isinstance(at, datetime):
        return at
    if isinstance(at, int | float):
        return datetime.fromtimestamp(at, UTC)
    if isinstance(at, str):
        return datetime.fromisoformat(at)
    raise EventError("it has no timestamp")


def _check(event: ServiceEvent, latest: datetime) -> None:
    if event.event_type.startswith(INTERNAL) or event.event_id.startswith(REDRIVE):
        raise EventError(f"event types that begin with {INTERNAL!r} are reserved")
    if event.timestamp > latest:
        raise EventError(f"timestamp {event.timestamp.isoformat()} is in the future")


def _problem(record: KafkaRecord, problem: str) -> FeedRecord:
    return FeedRecord(
        record.offset, None, problem=f"{record.name}: {problem}", raw=record.value or b""
    )


def load_decoder(name: str) -> Decode:
    """Return the function ``module:function``."""
    module, _, function = name.partition(":")
    try:
        found: Decode = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError, HeadwaterError) as error:
        raise ConfigError(
            f"the decoder {name!r} cannot be loaded: {error}; name it as module:function, in a "
            "module that Python finds"
        ) from error
    return found
