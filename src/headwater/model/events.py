"""Publishing and reading events: requests, results and pages of the log."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, cast

import msgspec
from msgspec import Meta

from headwater.core.clock import Clock
from headwater.core.codec import PydanticModel, UnstorableError, plain
from headwater.core.short_repr import short_repr
from headwater.core.tracing import TRACEPARENT
from headwater.errors import EventError
from headwater.model.kinds import EntityId, EventId, EventType, Payload
from headwater.model.values import ServiceEvent, is_whole_number, timing

LONGEST_WAIT = timedelta(seconds=60)
"""How long a publisher may wait for its events to be visible."""

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")


class DataclassLike(Protocol):
    """An instance of a dataclass, also of one that a decorator makes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


PayloadLike = Mapping[str, Any] | DataclassLike | msgspec.Struct | PydanticModel
"""A payload as ``publish`` takes it."""

EventTime = Annotated[
    datetime,
    Meta(
        tz=True,
        description="When it happened, at most 5 minutes in the future; now if it is left out.",
        examples=["2026-01-15T09:23:12Z"],
    ),
]

TraceParent = Annotated[
    str,
    Meta(
        description="The W3C trace context of the event, in place of that of the header.",
        examples=["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        extra_json_schema={"pattern": f"^(?:{TRACEPARENT.pattern})$"},
    ),
]


class EventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of an entity."""

    entity_id: EntityId
    payload: Payload = {}
    timestamp: EventTime | None = None
    event_id: EventId | None = None
    traceparent: TraceParent | None = None
    """The W3C trace context of the event, in place of the header's."""


class BatchItem(EventBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of a batch."""

    event_type: EventType


class AcceptedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that is durable; ``duplicate`` if it was published before.

    ``hint`` is there if no feature is triggered by the event type and a similar one triggers some,
    ``visible`` with `wait`: whether everything that the event triggers has taken effect. If not,
    ``problem`` says why.
    """

    event_id: EventId
    event_type: EventType
    entity_id: EntityId
    timestamp: datetime
    duplicate: bool
    hint: str | None = None
    visible: bool | None = None
    problem: str = ""


class AcceptedEvents(msgspec.Struct, frozen=True):
    """The events of a batch, in the order they were sent."""

    events: list[AcceptedEvent]


EVENT_STREAM = "text/event-stream"


class TailGap(msgspec.Struct, frozen=True):
    """The data of a message of the type ``gap``: events that were left out.

    ``skipped`` is their number; 10,000 means that many or more.
    """

    skipped: int


class PublishResult(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """The result of publishing one event.

    ``conflict`` says how the event differs from the one that was accepted with its id, and
    ``erased`` that its entity was erased; it is not stored then. With ``wait``, ``visible`` is
    whether everything that the event triggers has taken effect, and ``problem`` why not.
    """

    event_id: str
    duplicate: bool
    conflict: str = ""
    erased: bool = False
    visible: bool | None = None
    problem: str = ""
    position: str = ""
    """The place in its partition, for the store; callers get none."""


class EventLoadReport(msgspec.Struct, frozen=True):
    """What became of the rows of a file of events, of which ``read_bytes`` have been read.

    Of the ``rows`` so far, an earlier load published those ``loaded_before``. Of the others,
    ``duplicates`` were in the log, ``erased`` are about erased entities, and ``rejected`` are no
    valid events.
    """

    rows: int = 0
    loaded_before: int = 0
    duplicates: int = 0
    erased: int = 0
    rejected: int = 0
    read_bytes: int = 0
    total_bytes: int = 0

    @property
    def published(self) -> int:
        """How many events this load has added to the log."""
        known = self.loaded_before + self.duplicates + self.erased + self.rejected
        return self.rows - known

    __repr__ = short_repr("rows", "published", "loaded_before", "duplicates", "rejected")


OnEventsLoaded = Callable[[EventLoadReport], None]


class MirrorReport(msgspec.Struct, frozen=True):
    """What became of the records of a topic."""

    records: int = 0
    published: int = 0
    duplicates: int = 0
    erased: int = 0
    rejected: int = 0


MIRRORED = "events.mirrored"
"""The type of the events that say how far a topic is copied."""


class MirrorOptions(NamedTuple):
    """What is copied, and until when."""

    begin: datetime | None = None
    """Where a first copy begins; None for the first record that the topic keeps."""
    fields: Mapping[str, str] = MappingProxyType({})
    decode: str = ""
    once: bool = False
    """End at the records that the topic has at the start."""
    progress: Callable[[MirrorReport], None] = lambda _: None


"""Called with the numbers so far."""


class PublishedEvent(ServiceEvent, frozen=True, gc=False, repr_omit_defaults=True):
    """An event that its publisher waited for.

    ``visible`` is whether everything that it triggers has taken effect, so that reads show it. If
    not, the event is durable nevertheless, and ``problem`` says what it waits for or what failed.
    """

    visible: bool = False
    problem: str = ""

    @classmethod
    def of(cls, event: ServiceEvent, result: PublishResult) -> PublishedEvent:
        """Return an event with what became of it."""
        fields = msgspec.structs.asdict(event)
        return cls(**fields, visible=bool(result.visible), problem=result.problem)


class LoggedEvent(msgspec.Struct, frozen=True):
    """An accepted event, and when it was accepted."""

    event: ServiceEvent
    received_at: datetime


class FollowedEvent(msgspec.Struct, frozen=True):
    """An accepted event, and the position of the log after it."""

    logged: LoggedEvent
    position: str


class EventPage(msgspec.Struct, frozen=True):
    """The next events of the log, and the position after all events that were examined.

    ``skipped`` is the number of matching events that were too old, at most ``MOST_SKIPPED``. Events
    that were handled and moved out of a tail before they were followed count as well, all of them.
    """

    events: Sequence[FollowedEvent]
    position: str
    has_more: bool = False
    skipped: int = 0


class EventList(msgspec.Struct, frozen=True):
    """Accepted events, the newest first."""

    events: Sequence[LoggedEvent]


class EventMisfits(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the ``examined`` events of a declared type do not fit its class, and the first.

    These are its newest and its oldest events.
    """

    event_type: str
    examined: int
    count: int
    event_id: str
    problem: str


class EventArguments(NamedTuple):
    """The arguments of ``publish`` that make the event."""

    event_type: str
    entity_id: str | int
    payload: PayloadLike | None
    timestamp: datetime | None
    event_id: str | None


def new_event(
    clock: Clock,
    event_type: str,
    entity_id: str | int,
    payload: object,
    timestamp: datetime | None,
    event_id: str | None,
) -> ServiceEvent:
    """Return the event of the arguments of ``publish``."""
    fields = timing(timestamp, clock)
    if event_id is not None:
        fields["event_id"] = event_id
    if type(entity_id) is not str and is_whole_number(entity_id):
        entity_id = str(int(entity_id))
    # Any other id is refused by the event.
    return ServiceEvent(event_type, cast("str", entity_id), payload_of(payload), **fields)


def payload_of(payload: object) -> dict[str, Any]:
    """Return a payload as events have it, of a mapping or of an instance of a declared class."""
    if payload is None or isinstance(payload, Mapping):
        return dict(payload or {})
    try:
        fields = msgspec.to_builtins(plain(payload), str_keys=True)
    except UnstorableError as error:
        raise EventError(f"payload cannot be stored: {error}") from error
    if isinstance(payload, PydanticModel):
        _check_comes_back(payload, fields)
    if not isinstance(fields, dict):
        raise EventError(
            f"payload is a mapping such as {{'amount': 12.5}}, or an instance of a declared class, "
            f"not {reprlib.repr(payload)}"
        )
    return fields


def _check_comes_back(payload: PydanticModel, fields: Any) -> None:
    """Raise EventError if handlers would get a model with other values, as of a secret."""
    kind = type(payload)
    try:
        back = kind.model_validate_json(msgspec.json.encode(fields))
    except ValueError:
        return  # a declared class names the field that is missing, another takes what it is given
    names = getattr(kind, "model_fields", ())
    lost = ", ".join(name for name in names if getattr(back, name) != getattr(payload, name))
    if lost:
        raise EventError(
            f"payload cannot be stored: {kind.__name__} reads other values of {lost} than it "
            "writes; use an alias in both directions, and neither exclude= nor secrets, or pass "
            "a mapping"
        )
