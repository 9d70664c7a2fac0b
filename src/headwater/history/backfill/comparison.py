"""The comparison of two versions of a feature: counts, differences and examples."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace


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
