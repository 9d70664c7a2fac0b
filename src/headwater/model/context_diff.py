"""The differences between two contexts, as values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from headwater.model.lineage import Decision

Change = Literal["added", "removed", "changed", "same", "unknown"]
"""How a value changed; unknown if one of the records withholds it."""


class ValueDiff(msgspec.Struct, frozen=True):
    """A named value of both records: an input, a rule or a version."""

    name: str
    change: Change
    before: Any
    after: Any


class ItemSide(msgspec.Struct, frozen=True, kw_only=True):
    """An item of one context; `place` is its index in the declared order."""

    place: int
    decision: Decision
    reason: str
    priority: int
    tokens: int
    emitted_tokens: int


class ItemDiff(msgspec.Struct, frozen=True, kw_only=True):
    """An item of both contexts, or of one of them."""

    identity: str
    change: Change
    flipped: bool
    """True if both contexts have the item and decided differently about it."""

    tokens_delta: int
    before: ItemSide | None
    after: ItemSide | None


class FeatureSide(msgspec.Struct, frozen=True, kw_only=True):
    """A feature's value in one context; None if it is withheld."""

    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: str
    fresh: bool


class FeatureDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of one entity in both contexts, or in one of them."""

    feature: str
    entity: str
    entity_id: str | None
    change: Change
    before: FeatureSide | None
    after: FeatureSide | None


class ResultSide(msgspec.Struct, frozen=True, kw_only=True):
    """A result in one context; `rank` is its position among the results of its call, from 1."""

    rank: int
    score: str | None


class ResultDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A retriever's result in both contexts, or in one of them.

    It counts as changed if its content, rank or score changed.
    """

    retriever: str
    id: Any
    change: Change
    before: ResultSide | None
    after: ResultSide | None


class ContextDiff(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between two contexts."""

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
    """Only the inputs that differ; the same holds for `interaction_ref` and `rules`."""

    interaction_ref: Sequence[ValueDiff]
    rules: Sequence[ValueDiff]
    text: str | None
    """A unified diff; None if one of the texts is withheld."""

    def __repr__(self) -> str:
        text = "same text" if self.same_content else "other text"
        return f"<ContextDiff {self.before} → {self.after}: {text}, {self.tokens_delta:+} tokens>"
