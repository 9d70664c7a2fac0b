"""Events and stored values: the frozen things that every other room passes around.

Those made for every event are ``gc=False``: they are never part of a cycle, and a worker makes so
many that the collector would spend a tenth of its time on them.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any, Literal

import msgspec
from uuid_utils import uuid7

from headwater.core.clock import from_micros, to_micros
from headwater.errors import EventError

INTERNAL = "headwater."
"""What the types of Headwater's own events begin with."""

MALFORMED = f"{INTERNAL}malformed"
"""The type of what was found in the log and is no event."""

LONGEST_NAME = 256
LONGEST_ID = 1024

Source = Literal["online", "computed", "default", "missing"]
EntityKey = tuple[str, str]
"""An entity's declared name and one entity's id."""

Part = tuple[str, ...]
"""What something was made of: ``("feature", entity, feature, entity_id)``, ``("chunk", id)``."""


def new_id() -> str:
    """A fresh, time-sortable UUIDv7."""
    return str(uuid7())


def _now() -> datetime:
    return datetime.now(UTC)


class ServiceEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to one entity."""

    event_type: str
    entity_id: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    timestamp: datetime = msgspec.field(default_factory=_now)
    event_id: str = msgspec.field(default_factory=new_id)

    def __post_init__(self) -> None:
        a, b, c = self.event_type, self.entity_id, self.event_id
        # One look for what is fine, as nearly all is: a worker makes very many of these.
        if (
            type(a) is type(b) is type(c) is str
            and a
            and b
            and c
            and len(text := a + b + c) <= LONGEST_NAME
            and text.isprintable()
            and type(self.payload) is dict
            and type(self.timestamp) is datetime
            and self.timestamp.tzinfo is not None
            and is_moment(self.timestamp)
        ):
            return
        _check_text("event_type", a, LONGEST_NAME)
        _check_text("entity_id", b, LONGEST_ID)
        _check_text("event_id", c, LONGEST_ID)
        if not isinstance(self.payload, dict):
            raise EventError(f"payload must be an object, not {type(self.payload).__name__}")
        if not isinstance(self.timestamp, datetime) or self.timestamp.tzinfo is None:
            raise EventError(
                "timestamp must be a datetime with a time zone, for example datetime.now(UTC)"
            )
        if not is_moment(self.timestamp):
            raise EventError(f"timestamp {self.timestamp.isoformat()} is no moment of any calendar")


def is_moment(at: datetime) -> bool:
    """Says whether a moment can be written in every time zone."""
    return MINYEAR < at.year < MAXYEAR


def _check_text(field: str, text: object, longest: int) -> None:
    if type(text) is not str or not text:
        raise EventError(f"{field} must be a text that is not empty")
    if len(text) > longest:
        raise EventError(f"{field} is longer than {longest} characters")
    if not text.isprintable():
        raise EventError(f"{field} has characters that cannot be printed")


class Cell(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One feature's value of one entity as the online store keeps it; times in microseconds."""

    value: msgspec.Raw
    as_of: int
    written_at: int
    expires_at: int | None = None

    def expired(self, now: int) -> bool:
        """Says whether the value's time to live is over: it then counts as absent everywhere."""
        return self.expires_at is not None and self.expires_at <= now


Cells = dict[str, Cell]
"""All values of one entity, by feature."""


def merged(before: Cells, new: Cells) -> Cells:
    """Values with new ones on top, except where the old one speaks of a later moment.

    Of one moment the one written last counts, as in history, whoever's clock is ahead.
    """
    return before | {
        name: cell
        for name, cell in new.items()
        if (old := before.get(name)) is None
        or (old.as_of, old.written_at) <= (cell.as_of, cell.written_at)
        or old.expired(cell.written_at)
    }


def restored(before: Cells, past: Cells) -> Cells:
    """Values with those of history where there is none, or one that history has outlived.

    Of one moment the one written last counts, and history may not have it yet: an online value
    gives way to an older one never, and to one as old neither.
    """
    return before | {
        name: cell
        for name, cell in past.items()
        if (own := before.get(name)) is None
        or (own.as_of, own.written_at) < (cell.as_of, cell.written_at)
    }


encode_cells = msgspec.json.Encoder().encode
decode_cells = msgspec.json.Decoder(Cells).decode


class FeatureValue(msgspec.Struct, frozen=True, gc=False):
    """A feature's value as a reader gets it: what, how old, and where from.

    What was computed knows what it was ``made_of``, down to what is stored.
    """

    value: Any
    as_of: datetime | None
    source: Source
    written_at: datetime | None = None
    provenance: frozenset[Part] = frozenset()

    def age_ms(self, now: datetime) -> int | None:
        """Milliseconds between the moment the value speaks of and now."""
        if self.as_of is None:
            return None
        return max(0, (to_micros(now) - to_micros(self.as_of)) // 1_000)


def as_of_time(cell: Cell) -> datetime:
    """The moment a stored value speaks of."""
    return from_micros(cell.as_of)
