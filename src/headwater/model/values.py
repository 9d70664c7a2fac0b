"""Events and stored values: the frozen types that every package uses.

Types created for every event are ``gc=False``: they are never part of a reference cycle, and a
worker creates so many that the garbage collector would take a tenth of its time.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from numbers import Integral
from typing import Annotated, Any, Literal, SupportsInt, TypeGuard

import msgspec
from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import force_setattr
from uuid_utils import uuid7

from headwater.core.canonical_json import LARGEST
from headwater.core.clock import Clock, from_micros, to_micros
from headwater.core.short_repr import is_printable, short_repr
from headwater.core.tracing import is_traceparent
from headwater.errors import EventError, InvalidInputError

INTERNAL = "headwater."
"""The prefix of the types of Headwater's own events."""

MALFORMED = f"{INTERNAL}malformed"
"""The type given to an entry of the log that cannot be decoded as an event."""

REDRIVE = "redrive:"
"""The prefix of the event ids of redriven dead letters."""

LONGEST_NAME = 256
LONGEST_ID = 1024
OUT_OF_RANGE = f"out of range: the year must be between {MINYEAR + 1} and {MAXYEAR - 1}"

Source = Literal["online", "computed", "default", "missing"]
FreshnessRule = Literal["age", "caught_up", "inputs", "dead_letter"]
"""How the freshness of a value is judged: by its age, by what still waits for it, or by the
freshness of its inputs; with a dead letter of its feature and entity it is never fresh."""

Exact = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""An integer that every JSON parser reads exactly."""

EntityKey = tuple[str, str]
"""An entity's declared name and one entity's id."""

Part = tuple[str, ...]
"""A source of a value: ``("feature", entity, feature, entity_id)``, ``("chunk", id)``,
``("document", index or "", id)``, for a search ``("index", name, version)``, or ``("other", what)``
for one to which no limits of keys apply, such as the log of events.

What such a source is about follows: ``("entity", entity, entity_id)``, ``("event", entity_id)`` for
an event that may be about any entity, ``("key", hash)`` for each key of a record that was read, or
`EVERYTHING`."""

EVERYTHING: Part = ("everything",)
"""The source of what may be about any entity: a query, or more rows than are listed."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str, longest: int = LONGEST_NAME) -> bool:
    """Return whether every log can store this text and look it up."""
    return len(text) <= longest and _UNSTORABLE.search(text) is None


def check_utf8(text: str, what: str) -> None:
    """Raise InvalidInputError if a text that enters has a lone surrogate, which UTF-8 has not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} has a lone surrogate at character {error.start}, which cannot be stored; "
            "decode it with errors='replace'"
        ) from error


def new_id() -> str:
    """Return a new, time-sortable UUIDv7."""
    return str(uuid7())


_NOT_GIVEN: Any = UNSET


class ServiceEvent(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Something that happened to one entity; its timestamp is in UTC."""

    event_type: str
    entity_id: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    timestamp: datetime = _NOT_GIVEN
    event_id: str = msgspec.field(default_factory=new_id)
    traceparent: str | UnsetType = UNSET
    """The W3C trace context of the publisher; not part of the content."""
    assigned_time: datetime | UnsetType = UNSET
    """The timestamp, if the sender gave none. It is for the bus, which does not compare such a
    time: it is not stored, shown or equal to anything."""

    def __post_init__(self) -> None:
        if self.timestamp is _NOT_GIVEN:
            now = datetime.now(UTC)
            force_setattr(self, "timestamp", now)
            force_setattr(self, "assigned_time", now)
        if self.traceparent is not UNSET:
            _check_traceparent(self.traceparent)
        a, b, c, at = self.event_type, self.entity_id, self.event_id, self.timestamp
        # Nearly all events are valid, so check everything at once first: this is a hot path.
        if (
            type(a) is type(b) is type(c) is str
            and a
            and b
            and c
            and len(text := a + b + c) <= LONGEST_NAME
            and text.isprintable()
            and type(self.payload) is dict
            and type(at) is datetime
            and at.tzinfo is UTC
            and MINYEAR < at.year < MAXYEAR
        ):
            return
        _check_text("event_type", a, LONGEST_NAME)
        _check_text("entity_id", b, LONGEST_ID)
        _check_text("event_id", c, LONGEST_ID)
        if not isinstance(self.payload, dict):
            raise EventError(f"payload must be an object, not {type(self.payload).__name__}")
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise EventError(
                "timestamp must be a datetime with a time zone, for example datetime.now(UTC)"
            )
        if not has_supported_year(at):
            raise EventError(f"timestamp {at.isoformat()} is {OUT_OF_RANGE}")
        if at.tzinfo is not UTC:
            # Handlers see the same time in every environment, not the sender's time zone.
            force_setattr(self, "timestamp", at.astimezone(UTC))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ServiceEvent):
            other = without_assigned_time(other)
        return msgspec.Struct.__eq__(without_assigned_time(self), other)

    def __repr__(self) -> str:
        return msgspec.Struct.__repr__(without_assigned_time(self))


def timing(given: datetime | None, clock: Clock) -> dict[str, Any]:
    """Return the fields of an event with the time that its sender gave, or the current one."""
    if given is not None:
        return {"timestamp": given}
    now = clock.now()
    return {"timestamp": now, "assigned_time": now}


def is_time_assigned(event: ServiceEvent) -> bool:
    """Return whether the sender of an event gave no timestamp, so that it got the current time."""
    # They differ if the event was copied with a timestamp.
    return event.assigned_time == event.timestamp


def without_assigned_time(event: ServiceEvent) -> ServiceEvent:
    """Return the event as it is stored, without the note that its sender gave no timestamp."""
    if event.assigned_time is UNSET:
        return event
    copied: ServiceEvent = event.__copy__()  # type: ignore[attr-defined]  # missing in stubs
    force_setattr(copied, "assigned_time", UNSET)
    return copied


def redriven_id(letter_id: str, event_id: str) -> str:
    """Return the event id of a redrive: of its dead letter and, if it fits, the original event."""
    original = original_id(event_id)
    of_letter = f"{REDRIVE}{letter_id}"
    of_both = f"{of_letter}:{original}"
    return of_both if original and len(of_both) <= LONGEST_ID else of_letter


def original_id(event_id: str) -> str:
    """Return the id of the event that was redriven, "" if it did not fit; or the id as it is."""
    if event_id.startswith(REDRIVE):
        return event_id.removeprefix(REDRIVE).partition(":")[2]
    return event_id


def is_whole_number(entity_id: object) -> TypeGuard[SupportsInt]:
    """Return whether an id is an integer, also one of NumPy; False and True are not."""
    return isinstance(entity_id, Integral) and not isinstance(entity_id, bool)


def with_own_payload(event: ServiceEvent) -> ServiceEvent:
    """Return a copy of an event that shares no list or dict with it, at any depth."""
    copied: ServiceEvent = event.__copy__()  # type: ignore[attr-defined]  # missing in stubs
    # The constructor would check everything again: this is a hot path.
    force_setattr(copied, "payload", to_builtins(event.payload))
    return copied


def has_supported_year(at: datetime) -> bool:
    """Return True if the time can be expressed in every time zone."""
    return MINYEAR < at.year < MAXYEAR


def _check_traceparent(text: object) -> None:
    if not isinstance(text, str) or not is_traceparent(text):
        raise EventError(
            "traceparent must be a W3C trace context, such as "
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        )


def _check_text(field: str, text: object, longest: int) -> None:
    if type(text) is not str or not text:
        raise EventError(f"{field} must be a non-empty text")
    if len(text) > longest:
        raise EventError(f"{field} is longer than {longest} characters")
    if not is_printable(text):
        raise EventError(f"{field} contains characters that cannot be printed")


class Cell(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A feature's value of one entity in the online store; times in microseconds.

    A computed value that is ``derived`` is served to functions whose reads are tracked only if
    its derivation is known. A value that was set, or whose function read nothing, is not derived.
    """

    value: msgspec.Raw
    as_of: int
    written_at: int
    expires_at: int | None = None
    derived: bool = True

    def expired(self, now: int) -> bool:
        """Return True if the time to live is over; an expired value counts as absent."""
        return self.expires_at is not None and self.expires_at <= now


UNDATED = 0
"""The ``as_of`` of a computed value that has no moment, because one of its inputs had no value.

It is earlier than all others, so a later computation replaces it. Where it replaces an earlier
one itself, it has the ``as_of`` of that one.
"""

Cells = dict[str, Cell]
"""All values of one entity, by feature."""


def merge_cells(before: Cells, new: Cells) -> Cells:
    """Return the values updated with new ones, except where the old one has a later as_of.

    Of two values with the same as_of, the one written last wins, as in history.
    """
    return before | {
        name: cell
        for name, cell in new.items()
        if (old := before.get(name)) is None
        or (old.as_of, old.written_at) <= (cell.as_of, cell.written_at)
        or old.expired(cell.written_at)
    }


def restore_cells(before: Cells, past: Cells) -> Cells:
    """Return the values updated with those of history that are missing or newer.

    Of two values with the same as_of, the one written last wins, and history may not have it yet:
    history never replaces an online value that is as new or newer.
    """
    return before | {
        name: cell
        for name, cell in past.items()
        if (old := before.get(name)) is None
        or (old.as_of, old.written_at) < (cell.as_of, cell.written_at)
    }


def with_cell(before: Cells, series: str, cell: Cell | None) -> Cells:
    """Return the values with another one of a series, or without one of it."""
    others = {name: other for name, other in before.items() if name != series}
    return others if cell is None else others | {series: cell}


encode_cells = msgspec.json.Encoder().encode
decode_cells = msgspec.json.Decoder(Cells).decode


class WindowRead(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The window of a value, and its inputs.

    ``read_at`` is the moment of the evaluation, ``last_fold`` that of the last contribution before
    it; null if there was none. ``relative_error`` is that of a sketch.
    """

    family: str
    aggregate: str
    window: str
    span_us: Exact
    hop_us: Exact
    relative_error: str | None
    read_at: datetime
    last_fold: datetime | None


class FeatureValue(msgspec.Struct, frozen=True, gc=False):
    """A feature's value as a reader gets it: the value, its age and its source.

    ``provenance`` of a computed value lists the stored values and chunks it was computed from, and
    ``inputs`` the values themselves where reads are tracked, as in contexts. ``current_at`` is the
    moment at which the value was known to be current, if that is not ``as_of``. ``window`` is that
    of a feature of a family, where reads are tracked.
    """

    value: Any
    as_of: datetime | None
    source: Source
    written_at: datetime | None = None
    provenance: frozenset[Part] = frozenset()
    rule: FreshnessRule = "age"
    current_at: datetime | None = None
    inputs: tuple[TrackedFeature, ...] = ()
    window: WindowRead | None = None

    __repr__ = short_repr("value", "as_of", "source")

    def age_ms(self, now: datetime) -> int | None:
        """Return the milliseconds since ``as_of``, or None if there is no value."""
        if self.as_of is None:
            return None
        return max(0, (to_micros(now) - to_micros(self.as_of)) // 1_000)

    @property
    def moment(self) -> datetime | None:
        """The moment from which the freshness of the value counts; None if it has none."""
        if self.rule == "dead_letter":
            return None
        return self.as_of if self.current_at is None else self.current_at


class TrackedFeature(msgspec.Struct, frozen=True, gc=False):
    """A value that was read, the feature and entity it is of, and the feature's own SLA."""

    entity: str
    feature: str
    entity_id: str
    value: FeatureValue
    sla_ms: int | None = None


def as_of_time(cell: Cell) -> datetime:
    """Return the ``as_of`` of a stored value as a datetime."""
    return from_micros(cell.as_of)
