"""Reading windows: the values of a family's features from the state of an entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.core.clock import from_micros
from headwater.declarations.features import FeatureDef
from headwater.model.features import FeatureRow
from headwater.model.values import Cell, FeatureValue
from headwater.windows.plan import Member, WindowPlan
from headwater.windows.state import WindowState, covers, decode_state, evaluate

MISSING = FeatureValue(None, None, "missing")
_OWN_TYPE = frozenset({"first", "last", "lasts"})
"""The kinds of aggregates whose values are contributions."""


def absent(feature: FeatureDef) -> FeatureValue:
    """Return what is read where a feature has no value."""
    if feature.default is None:
        return MISSING
    return FeatureValue(feature.fallback(), None, "default")


class FamilyRead(NamedTuple):
    """The features of one family that a read needs."""

    family: FeatureDef
    plan: WindowPlan
    features: tuple[FeatureDef, ...]
    names: tuple[str, ...]
    members: tuple[Member, ...]
    decoded: tuple[FeatureDef, ...]
    """Those whose values are not plain: their types are decoded."""
    defaulted: tuple[FeatureDef, ...]

    def values(self, state: msgspec.Raw | None, moment: int) -> dict[str, Any] | None:
        """Return the bare values at a moment, None where there is none.

        Return None if the state is of another plan, or has not all tiles of that moment any more.
        """
        decoded: WindowState | None = None
        if state is not None:
            decoded = decode_state(self.plan, state)
            if decoded is None or not covers(self.plan, decoded, moment):
                return None
        values = dict(
            zip(self.names, evaluate(self.plan, decoded, self.members, moment), strict=True)
        )
        for feature in self.decoded:
            if values[feature.name] is not None:
                text = msgspec.json.encode(values[feature.name])
                values[feature.name] = feature.codec.decode(text)
        return values

    def row(self, cell: Cell | None, moment: int) -> FeatureRow | None:
        """Return the values at a moment with age and source; None as ``values`` does."""
        values = self.values(None if cell is None else cell.value, moment)
        if values is None:
            return None
        at = from_micros(moment)
        written_at = None if cell is None else from_micros(cell.written_at)
        return {
            feature.name: absent(feature)
            if (value := values[feature.name]) is None
            else FeatureValue(value, at, "online", written_at)
            for feature in self.features
        }


def family_reads(
    features: Iterable[FeatureDef], families: Mapping[str, FeatureDef]
) -> tuple[FamilyRead, ...]:
    """Return how the features of families are read, each family once."""
    grouped: dict[str, list[FeatureDef]] = {}
    for feature in features:
        if feature.window is not None:
            grouped.setdefault(feature.window.family, []).append(feature)
    reads = []
    for name, members in grouped.items():
        family = families[name]
        assert family.windows is not None, "a feature of a family names it"
        kinds = [member.window.member for member in members if member.window is not None]
        decoded = [
            member
            for member, kind in zip(members, kinds, strict=True)
            if kind.aggregate.kind in _OWN_TYPE and member.codec.kind in ("json", "time")
        ]
        reads.append(
            FamilyRead(
                family,
                family.windows.plan,
                tuple(members),
                tuple([member.name for member in members]),
                tuple(kinds),
                tuple(decoded),
                tuple([member for member in members if member.default is not None]),
            )
        )
    return tuple(reads)
