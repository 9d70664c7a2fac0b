"""Backfills: requests, progress, reports and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from headwater.model.dead_letters import DeadLetter


class CancelledBackfill(msgspec.Struct, frozen=True):
    """The version of a feature that was given up."""

    feature: str
    version: int


Phase = Literal["export", "copy", "replay", "install", "catch up", "join"]


class BackfillProgress(msgspec.Struct, frozen=True):
    """How far a phase of a backfill is; the total and the seconds left are None if unknown."""

    phase: Phase
    done: int = 0
    total: int | None = None
    seconds_left: float | None = None

    @property
    def label(self) -> str:
        """The phase, beside its numbers."""
        return self.phase


OnProgress = Callable[[BackfillProgress], None]


class ReplayReport(msgspec.Struct, frozen=True):
    """How many events a replay has run, how many failed, and how many values they made.

    ``unstored`` counts, by feature, the values that handlers set on other features: they were seen
    by the handler that set them, and are not stored.
    """

    events: int = 0
    values: int = 0
    failures: int = 0
    unstored: Mapping[str, int] = {}


class BackfillStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far an unfinished backfill is.

    ``replayed`` and ``failures`` are of the replay of stored events, as far as its folder is on
    this machine; ``waiting`` counts the events since its start that the new version lacks.
    """

    feature: str
    version: int
    state: str
    created_at: datetime
    since: datetime | None
    replayed: int
    waiting: int
    joined: int
    partitions: int
    failures: Sequence[DeadLetter]


class BackfillReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill that is done: the version that it has made, and the replay of stored events.

    ``replayed`` is None if an earlier run of it has done that.
    """

    feature: str
    version: int | None
    """None if values were only added to history."""
    is_served: bool
    replayed: ReplayReport | None
    failures: Sequence[DeadLetter] = ()
    """The first hundred events that failed in the replay."""


class SwitchReport(msgspec.Struct, frozen=True):
    """The version of a feature that is served now, and the one that was before."""

    feature: str
    version: int
    before: int


class ValuePair(msgspec.Struct, frozen=True):
    """An entity with different values: the JSON text of each, or None if it has none."""

    entity_id: str
    old: msgspec.Raw | None
    new: msgspec.Raw | None


class Differences(msgspec.Struct, frozen=True):
    """The differences between numbers: the new value minus the old one."""

    count: int = 0
    mean: float = 0.0
    smallest: float = 0.0
    largest: float = 0.0

    def plus(self, difference: float) -> Differences:
        """Return these differences and one more."""
        if not self.count:
            return Differences(1, difference, difference, difference)
        return Differences(
            self.count + 1,
            self.mean + (difference - self.mean) / (self.count + 1),
            min(self.smallest, difference),
            max(self.largest, difference),
        )


class Counts(msgspec.Struct, frozen=True):
    """How many values are equal, different, or there in only one version."""

    equal: int = 0
    different: int = 0
    only_old: int = 0
    only_new: int = 0

    def plus(self, old: bytes | None, new: bytes | None) -> Counts:
        """Return these counts and a pair of values, of which at least one is there."""
        if old is None:
            return replace(self, only_new=self.only_new + 1)
        if new is None:
            return replace(self, only_old=self.only_old + 1)
        if is_equal(old, new):
            return replace(self, equal=self.equal + 1)
        return replace(self, different=self.different + 1)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions of a feature side by side.

    ``history`` counts the moments of the entities in the sample at which a version has a value.
    """

    feature: str
    old: int
    new: int
    online: Counts
    numbers: Differences | None
    examples: Sequence[ValuePair]
    sampled_entities: int
    history: Counts


def is_equal(old: bytes, new: bytes) -> bool:
    """Return whether two JSON texts have the same value."""
    return old == new or msgspec.json.decode(old) == msgspec.json.decode(new)
