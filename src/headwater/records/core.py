"""What the core of a record says, field by field.

The assembler fills these with plain values. Sealing replaces every `Committed` one by a salted
commitment, and opening puts back those that are disclosed. A field that is added later needs a
default, so that the cores of earlier versions can still be opened.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from headwater.core.canonical_json import LARGEST
from headwater.records.lineage import FreshnessStatus

SPEC = "CRS-001"
COMMITTED = "committed"
"""What marks the annotation of a committed field."""

T = TypeVar("T")


class Commitment(msgspec.Struct, frozen=True):
    """Stands for a value that is withheld: the hash of its salt, its pointer and itself."""

    digest: str = msgspec.field(name="$sd")


Committed = Annotated[T | Commitment, COMMITTED]
"""A value that the core only commits to; a `Commitment` where it is not disclosed."""

Exact = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""An integer that every reader of JSON keeps."""

Decision = Literal["kept", "truncated", "dropped"]


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The programs that made the record."""

    headwater: str
    python: str
    tokenizer: str | None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The context's declaration; `definition` is the hash of its function's source."""

    name: str
    version: str | None
    definition: str | None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that the fit and the freshness check followed."""

    max_tokens: Exact | None
    separator: str
    on_overflow: str
    backfill: bool
    model: str | None
    freshness_sla_ms: Exact | None
    freshness_strict: bool


class TokenizerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What counted the tokens; an inexact one adds a margin."""

    name: str
    exact: bool
    margin_percent: Exact


class ItemSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item's text came from."""

    kind: Literal["literal", "template", "retrieval", "context", "other"]
    ref: Committed[Any] | None = None


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate and what was decided about it.

    `emitted` is the text as it stands in the output, where that is not `content`; `short_by` is
    how many tokens more would have admitted it. Early records have `section` in clear.
    """

    content: Committed[str]
    emitted: Committed[str] | None = None
    priority: Exact
    required: bool
    truncate: bool
    section: Committed[str] | None = None
    source: ItemSource
    tokens: Exact
    emitted_tokens: Exact
    decision: Decision
    reason: str
    short_by: Exact


class FeatureRead(msgspec.Struct, frozen=True, kw_only=True):
    """One feature value that the context read."""

    feature: str
    entity: str
    entity_id: Committed[str]
    value: Committed[Any]
    as_of: datetime | None
    written_at: datetime | None
    age_ms: Exact | None
    source: str
    fresh: bool


class IndexRead(msgspec.Struct, frozen=True, kw_only=True):
    """The index a retriever searched, in the version it had."""

    name: str
    version: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a retriever found."""

    id: Committed[Any]
    score: str | None
    content: Committed[Any]


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a retriever; early records leave out whether it was fresh, or failed."""

    retriever: str
    arguments: Committed[Any]
    index: IndexRead | None
    results: tuple[Result, ...]
    count: Exact
    searched_at: datetime
    age_ms: Exact
    cache_hit: bool
    latency_us: Exact
    fresh: bool | None = None
    failed: bool = False


class NestedContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context that was assembled inside this one; early records leave out its freshness."""

    context_id: str
    record_hash: str | None
    name: str
    freshness_status: FreshnessStatus | None = None


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Something read that was older than the freshness SLA, missing or a default."""

    kind: Literal["feature", "retrieval", "context"]
    name: str
    entity_id: Committed[str] | None = None
    age_ms: Exact | None
    sla_ms: Exact
    reason: Literal["stale", "missing", "default"]


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on everything that was read."""

    status: FreshnessStatus
    sla_ms: Exact | None
    stalest_ms: Exact | None
    violations: tuple[Violation, ...] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The text that came out; its hash is filled in by the seal."""

    content: Committed[str]
    content_hash: str = ""
    tokens: Exact
    items_kept: Exact
    items_dropped: Exact
    items_truncated: Exact
    cost_nano_usd: Exact | None
    overflow: bool


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When the assembly began and how long it took."""

    started_at: datetime
    assembly_us: Exact


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one record says."""

    spec: str = SPEC
    version: Exact = 1
    context_id: str
    created_at: datetime
    environment: str
    versions: Versions
    context: Definition
    inputs: dict[str, Committed[Any]]
    interaction_ref: dict[str, Committed[Any]] | None = None
    policy: Policy
    tokenizer: TokenizerInfo
    items: tuple[Item, ...] = ()
    features: tuple[FeatureRead, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()
    contexts: tuple[NestedContext, ...] = ()
    freshness: Freshness
    output: Output
    timing: Timing


def decimal_text(score: float) -> str:
    """A score as the core writes it: all its digits, no exponent."""
    number = Decimal(repr(score))
    return format(number, "f") if number.is_finite() else str(number)
