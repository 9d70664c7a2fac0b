"""Declared entities and features."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, Literal

import msgspec

from headwater.core.clock import MICROSECOND
from headwater.core.codec import Codec
from headwater.core.schedules import Schedule
from headwater.core.short_repr import is_printable
from headwater.core.templates import Template
from headwater.declarations.events import Event, EventDef
from headwater.declarations.windows import WindowDef, WindowMember
from headwater.errors import (
    EntityChangedError,
    FeatureValueError,
    InvalidInputError,
)
from headwater.errors.hints import Location
from headwater.model.declarations import Mode
from headwater.model.values import LONGEST_ID, ServiceEvent, is_whole_number

DEFAULT_MAX_RETRIES = 3
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IMMUTABLE = frozenset({NoneType, bool, int, float, str, datetime})

Order = Literal["stream", "event_time"]
FreshnessBy = Literal["age", "caught_up"]


class EntityDef(msgspec.Struct, frozen=True):
    """A declared entity and its id field."""

    name: str
    id_field: str
    id_type: type[str] | type[int]
    location: Location
    description: str = ""
    belongs_to: tuple[tuple[str, EntityDef], ...] = ()
    """The entities that it belongs to, each by the feature or payload field with the owner's id."""

    def implied_name(self, field: str) -> str:
        """Return the name of the feature that keeps a payload field with an owner's id.

        Names of features are unique in a store, and things of several kinds have one owner.
        """
        return f"{_WORD_STARTS.sub('_', self.name).lower()}_{field}"

    def text_id(self, entity_id: object) -> str:
        """Return the id as stored, which is text; raise InvalidInputError if it is invalid."""
        text = self.event_id_text(entity_id)
        if self.id_type is int and type(entity_id) is str:
            self.native_id(entity_id)
        return text

    def event_id_text(self, entity_id: object) -> str:
        """Return the id as events have it, also if the entity's type refuses it, such as ``07``."""
        if type(entity_id) is int and self.id_type is int:
            return str(entity_id)
        if type(entity_id) is not str:
            if self.id_type is int and is_whole_number(entity_id):
                return str(int(entity_id))
            expected = "a whole number (int)" if self.id_type is int else "text (str)"
            kind = type(entity_id).__name__
            raise InvalidInputError(
                f"{self.id_field} must be {expected}, not the {kind} {reprlib.repr(entity_id)}"
            )
        if not 0 < len(entity_id) <= LONGEST_ID or not is_printable(entity_id):
            # The limits of the ids of events.
            raise InvalidInputError(
                f"{self.id_field} must be printable text of 1 to {LONGEST_ID} characters, not "
                f"{reprlib.repr(entity_id)}"
            )
        return entity_id

    def native_id(self, entity_id: str) -> str | int:
        """Return the id in the type that the class annotates, as functions receive it."""
        if self.id_type is str:
            return entity_id
        try:
            number = int(entity_id)
        except ValueError:
            number = None
        # "07" and "+7" would be other entities under the same number.
        if number is None or str(number) != entity_id:
            raise InvalidInputError(
                f"{self.id_field} of {self.name} must be a whole number such as 7, not "
                f"{entity_id!r}"
            )
        return number


class FeatureDef(msgspec.Struct, frozen=True, kw_only=True):
    """A declared feature and its options."""

    name: str
    entity: EntityDef
    function: Callable[..., Any]
    is_async: bool
    codec: Codec
    location: Location
    description: str = ""
    owner: str = ""
    """Who answers for it, such as a team."""
    tags: tuple[str, ...] = ()
    unit: str = ""
    """What a value is counted in, such as ``EUR``."""
    triggers: tuple[str, ...] = ()
    refresh: Schedule | None = None
    materialize: bool = False
    max_retries: int = DEFAULT_MAX_RETRIES
    sql: str | None = None
    template: Template | None = None
    default: Any = None
    ttl: timedelta | None = None
    earlier_ttls: tuple[tuple[int, timedelta | None], ...] = ()
    """Moments, oldest first, and the ttl of values that were written before each of them."""
    order: Order = "stream"
    freshness: FreshnessBy = "age"
    freshness_sla: timedelta | None = None
    log: bool = False
    derived: bool = False
    typed_events: Mapping[str, EventDef] = {}
    """The event types whose payloads the handler takes as instances of their declared classes."""
    repeatable: bool = False
    """Whether the handler may have its effects again for every past event."""
    series: str = ""
    """The name that values are stored under; that of the feature, unless the catalog names one."""
    lineage: tuple[tuple[str, bool], ...] = ()
    """The series that its values are in, the last one first, and whether they are converted."""
    foreign: tuple[str, str] | None = None
    """A series of it with the values of another entity, and that entity."""
    is_other_kind: bool = False
    """Whether its series has values where it needs contributions, or the other way round."""
    windows: WindowDef | None = None
    """The windows of a family: its values in history are contributions, online it is a state."""
    window: WindowMember | None = None
    """The aggregate and the window of a feature of a family, whose series it has."""
    mode: Mode
    """When the value is computed."""
    stored: bool
    """Whether a read only looks the value up and never computes it."""
    is_implied: bool = False
    """Whether ``belongs_to`` of its entity declares it: its value is a field of the payload, and
    events without the field leave it."""

    @property
    def belongs_to(self) -> EntityDef | None:
        """The owner of its entity whose id is its value, if it is such a feature."""
        for field, owner in self.entity.belongs_to:
            name = self.entity.implied_name(field) if self.is_implied else field
            if name == self.name:
                return owner
        return None

    def __post_init__(self) -> None:
        if not self.series:
            msgspec.structs.force_setattr(self, "series", self.name)

    def event_as_taken(self, event: ServiceEvent) -> ServiceEvent | Event[Any]:
        """Return an event as the handler takes it; raise EventError if the payload does not fit."""
        declared = self.typed_events.get(event.event_type)
        return event if declared is None else declared.typed(event)

    def expiry_of(self, written_at: int) -> int | None:
        """Return when a value expires, by the ttl of the moment at which it was written."""
        earlier = (ttl for until, ttl in self.earlier_ttls if written_at < until)
        ttl = next(earlier, self.ttl)
        return written_at + ttl // MICROSECOND if ttl else None

    @property
    def chain(self) -> Sequence[tuple[str, bool]]:
        """The series whose last value counts under its own, and whether they are converted."""
        for place, (series, _) in enumerate(self.lineage):
            if series == self.series:
                return self.lineage[place:]
        return ((self.series, False),)

    @property
    def is_foreign(self) -> bool:
        """Whether its series has the values of another entity, or of a type that it cannot read."""
        is_of_another = self.foreign is not None and self.foreign[0] == self.series
        return is_of_another or self._is_outdated or self.is_other_kind

    @property
    def _is_outdated(self) -> bool:
        return self.codec.convert is None and any(converts for _, converts in self.chain)

    def check_stored(self) -> None:
        """Raise EntityChangedError if its series has the values of another entity.

        Raise FeatureValueError if some are of another type and this process has no convert=.
        """
        if self.is_other_kind:
            name = self.name if self.window is None else self.window.family
            is_plain = self.windows is None and self.window is None
            raise FeatureValueError(
                self.name,
                f"was declared {'with' if is_plain else 'without'} windows when "
                f"its values were stored; give {name!r} another name, or compute it again with "
                f"`headwater backfill {name}`",
            )
        if self._is_outdated:
            raise FeatureValueError(
                self.name,
                f"has values of other types than {self.codec.expected}, and this process declares "
                "no convert= for them; load the present features file, declare convert= again, or "
                f"compute the values again with `headwater backfill {self.name}`",
            )
        if self.foreign is not None and self.foreign[0] == self.series:
            raise EntityChangedError(self.name, self.foreign[1], self.entity.name, self.location)

    def fallback(self) -> Any:
        """Return the default, as a copy if it is mutable."""
        return self.default if type(self.default) in _IMMUTABLE else deepcopy(self.default)

    @property
    def default_text(self) -> str | None:
        """The default as JSON text; None if it has none."""
        return None if self.default is None else self.codec.encode(self.default).decode()

    @property
    def kept(self) -> bool:
        """Whether a computed value is stored for later reads."""
        return self.stored or self.ttl is not None or self.refresh is not None

    @property
    def has_history(self) -> bool:
        """Whether its values are in history; all others are computed from those of others."""
        return self.kept or self.log

    @property
    def is_stored(self) -> bool:
        """Whether values of it are stored under a series, which the catalog names."""
        return self.has_history and self.codec.kind != "none"

    @property
    def is_named(self) -> bool:
        """Whether the catalog knows it: its values or its default may be another one later."""
        return self.is_stored or self.default is not None
