"""The difference between two records: items and features by identity, and the text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import unified_diff
from typing import Any, Literal, TypeVar

import msgspec

from headwater.canonical import canonical, to_tagged
from headwater.record.core import Commitment, Core, FeatureRead, Item, Policy

T = TypeVar("T")

Change = Literal["added", "removed", "changed", "same", "unknown"]
"""What became of something; unknown where one of the records withholds it."""


class ValueDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A named value on both sides: an input, a rule or a circumstance."""

    name: str
    change: Change
    before: Any
    after: Any


class ItemDiff(msgspec.Struct, frozen=True, kw_only=True):
    """An item on both sides; the places are those in the declared order, counted from 0."""

    identity: str
    change: Change
    place_before: int | None
    place_after: int | None
    decision_before: str | None
    decision_after: str | None
    reason_before: str | None
    reason_after: str | None
    priority_before: int | None
    priority_after: int | None
    tokens_before: int
    tokens_after: int
    """Tokens of the text as it was emitted; 0 where it was dropped or is not there."""

    @property
    def flipped(self) -> bool:
        """Says whether it is in one of the texts and not, or not whole, in the other."""
        return self.decision_before != self.decision_after


class FeatureDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of one entity on both sides."""

    feature: str
    entity: str
    entity_id: str | None
    change: Change
    value_before: Any
    value_after: Any
    as_of_before: datetime | None
    as_of_after: datetime | None
    age_ms_before: int | None
    age_ms_after: int | None
    fresh_before: bool | None
    fresh_after: bool | None


class ResultDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a retriever found, and its rank on both sides, counted from 1."""

    retriever: str
    id: Any
    change: Change
    rank_before: int | None
    rank_after: int | None
    score_before: str | None
    score_after: str | None


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in which one context differs from another."""

    before: str
    after: str
    same_content: bool
    tokens_before: int
    tokens_after: int
    tokens_delta: int
    items: Sequence[ItemDiff]
    features: Sequence[FeatureDiff]
    results: Sequence[ResultDiff]
    inputs: Sequence[ValueDiff]
    rules: Sequence[ValueDiff]
    text: str | None
    """A unified diff; None where one of the texts is withheld."""
