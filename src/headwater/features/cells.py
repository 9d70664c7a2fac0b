"""Stored forms of a feature's value: the online cell and the history row."""

from __future__ import annotations

import msgspec

from headwater.core.clock import MICROSECOND, to_micros
from headwater.declarations.features import FeatureDef
from headwater.errors import FeatureValueError
from headwater.model.values import Cell
from headwater.ports import Change, PastValue


def make_cell(
    feature: FeatureDef, value: object, as_of: int, now: int, *, derived: bool = False
) -> Cell:
    """Return the cell of a value; raise FeatureValueError if it does not fit the feature."""
    expires_at = now + feature.ttl // MICROSECOND if feature.ttl else None
    return Cell(msgspec.Raw(feature.codec.encode(value)), as_of, now, expires_at, derived)


def history_cell(feature: FeatureDef, past: PastValue) -> Cell:
    """Return a value of history as a cell that expires as the feature declared when it was written.

    History does not say what the value of an on-demand feature was computed from.
    """
    as_of, written_at = to_micros(past.as_of), to_micros(past.written_at)
    expires_at = feature.expiry_of(written_at)
    return Cell(msgspec.Raw(past.value), as_of, written_at, expires_at, not feature.stored)


def make_change(
    feature: FeatureDef,
    entity_id: str,
    cell: Cell,
    cause: str,
    *,
    online: bool = True,
    authoritative: bool = True,
    begins: bool = True,
) -> Change:
    """Return the history row of a feature's new value."""
    return Change(
        feature.series,
        feature.entity.name,
        entity_id,
        feature.codec.kind,
        cell,
        cause,
        online,
        authoritative,
        begins,
    )


def is_same_value(
    feature: FeatureDef, one: bytes | msgspec.Raw, other: bytes | msgspec.Raw
) -> bool:
    """Return whether two stored values of a feature are equal.

    History may store a value in a typed column, which loses its exact text.
    """
    if bytes(one) == bytes(other):
        return True
    try:
        return bool(feature.codec.decode(one) == feature.codec.decode(other))
    except FeatureValueError:
        # The feature's type has changed since.
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
