"""What a context was made of, as the one who asks for it sees it, at once or years later.

What a record withholds is None here, and its pointer stands in ``withheld``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

FreshnessStatus = Literal["guaranteed", "degraded"]


class FeatureLineage(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that was read: its value, the moment it speaks of, and whether it was fresh."""

    feature: str
    entity: str
    entity_id: str | None
    value: Any
    as_of: datetime | None
    written_at: datetime | None
    age_ms: int | None
    source: str
    fresh: bool


class RetrieverLineage(msgspec.Struct, frozen=True, kw_only=True):
    """A retriever that was called: with what, how much it found, how long it took and how old.

    One that failed found nothing, and the function that called it went on without it.
    """

    retriever: str
    arguments: Mapping[str, Any] | None
    count: int
    latency_ms: float
    cache_hit: bool
    searched_at: datetime
    age_ms: int
    fresh: bool
    failed: bool = False


class NestedLineage(msgspec.Struct, frozen=True, kw_only=True):
    """A context that was assembled inside another."""

    context_id: str
    record_hash: str | None
    name: str
    freshness_status: FreshnessStatus | None


class ItemLineage(msgspec.Struct, frozen=True, kw_only=True):
    """An item that wanted to be in the context, and what was decided about it."""

    decision: Literal["kept", "truncated", "dropped"]
    reason: str
    priority: int
    required: bool
    section: str | None
    tokens: int
    emitted_tokens: int
    short_by: int


class ContextLineage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that went into a context, and what it took."""

    features: Sequence[FeatureLineage]
    retrievers: Sequence[RetrieverLineage]
    contexts: Sequence[NestedLineage]
    items: Sequence[ItemLineage]
    items_provided: int
    items_included: int
    items_dropped: int
    items_truncated: int
    tokens: int
    max_tokens: int | None
    cost_nano_usd: int | None
    stalest_ms: int | None
    assembly_ms: float


class FreshnessViolation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was older than the SLA, or missing, or only a default."""

    kind: Literal["feature", "retrieval", "context"]
    name: str
    entity_id: str | None
    age_ms: int | None
    sla_ms: int
    reason: Literal["stale", "missing", "default"]


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """An assembled context: its text, what it was made of, and the proof of it."""

    content: str
    context_id: str
    record_hash: str | None
    content_hash: str
    name: str
    created_at: datetime
    tokens: int
    cost_nano_usd: int | None
    freshness_status: FreshnessStatus
    freshness_violations: Sequence[FreshnessViolation]
    freshness_sla_ms: int | None
    interaction_ref: Mapping[str, Any] | None
    lineage: ContextLineage
    meta: Mapping[str, Any]

    @property
    def is_fresh(self) -> bool:
        """Says whether everything in it was as fresh as its SLA asks."""
        return self.freshness_status == "guaranteed"

    def __str__(self) -> str:
        return self.content


class PastContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context as its record tells it."""

    content: str | None
    context_id: str
    record_hash: str
    content_hash: str
    name: str
    version: str | None
    created_at: datetime
    environment: str
    model: str | None
    inputs: Mapping[str, Any]
    interaction_ref: Mapping[str, Any] | None
    tokens: int
    cost_nano_usd: int | None
    freshness_status: FreshnessStatus
    freshness_violations: Sequence[FreshnessViolation]
    freshness_sla_ms: int | None
    lineage: ContextLineage
    meta: Mapping[str, Any]
    signed_by: str | None
    withheld: Sequence[str]
    redacted: Sequence[str]

    @property
    def is_fresh(self) -> bool:
        """Says whether everything in it was as fresh as its SLA asked."""
        return self.freshness_status == "guaranteed"

    def __str__(self) -> str:
        return f"(withheld: {self.content_hash})" if self.content is None else self.content


class ItemTrace(ItemLineage, frozen=True, kw_only=True):
    """An item with its text, where it came from, and in words why it was kept or not."""

    content: str | None
    emitted: str | None
    truncate: bool
    source_kind: str
    source_ref: Any
    why: str


class ResultTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a retriever found."""

    id: Any
    score: str | None
    content: str | None


class RetrieverTrace(RetrieverLineage, frozen=True, kw_only=True):
    """A retriever that was called, with everything that it found."""

    index: str | None
    index_version: str | None
    results: Sequence[ResultTrace]


class ContextTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a person needs to see why a context is as it is."""

    context_id: str
    record_hash: str
    content_hash: str
    name: str
    version: str | None
    definition: str | None
    created_at: datetime
    environment: str
    versions: Mapping[str, str | None]
    model: str | None
    inputs: Mapping[str, Any]
    interaction_ref: Mapping[str, Any] | None
    content: str | None
    summary: str
    items: Sequence[ItemTrace]
    features: Sequence[FeatureLineage]
    retrievers: Sequence[RetrieverTrace]
    contexts: Sequence[NestedLineage]
    tokens: int
    max_tokens: int | None
    overflow: bool
    separator: str
    on_overflow: str
    backfill: bool
    tokenizer: str
    exact: bool
    margin_percent: int
    cost_nano_usd: int | None
    freshness_status: FreshnessStatus
    freshness_violations: Sequence[FreshnessViolation]
    freshness_sla_ms: int | None
    freshness_strict: bool
    stalest_ms: int | None
    started_at: datetime
    assembly_ms: float
    signed_by: str | None
    withheld: Sequence[str]
    redacted: Sequence[str]
