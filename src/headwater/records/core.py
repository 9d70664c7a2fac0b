"""The core of a record, field by field.

The assembler fills the fields with plain values. Sealing replaces the value of every `Committed`
field by a salted commitment, and opening restores the values that are disclosed.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from headwater.messages.parts import Grade, Role
from headwater.model.lineage import (
    Decision,
    FreshnessStatus,
    NestedLineage,
    ReadValue,
    ViolationReason,
)
from headwater.model.values import Exact
from headwater.records.record import SPEC

COMMITTED = "committed"
"""Marks the annotation of a committed field."""

T = TypeVar("T")


class Commitment(msgspec.Struct, frozen=True):
    """The hash of a salt, a pointer and a value, in place of the value."""

    digest: str = msgspec.field(name="$sd")


Committed = Annotated[T | Commitment, COMMITTED]
"""A value that the core only commits to; a `Commitment` where it is not disclosed."""


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
    set_by_call: tuple[str, ...] = ()
    """The limits that the call set, in place of the declared ones."""
    max_output: Exact | msgspec.UnsetType = msgspec.UNSET
    """The tokens that are reserved for the answer; absent without a reserve."""


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """How the tokens of a request were counted, and what was counted around its parts.

    `limit` is the number of tokens, by this count, that the items had to stay within.
    """

    grade: Grade
    source: str
    request_tokens: Exact
    message_tokens: Exact
    tools_tokens: Exact
    limit: Exact | None


class TokenizerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The tokenizer that counted the tokens; an inexact one adds a margin."""

    name: str
    exact: bool
    margin_percent: Exact
    counter: Counter | msgspec.UnsetType = msgspec.UNSET
    """How the whole request was counted; absent in a context without messages."""


class ItemSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item's text came from.

    `ref` is the text of a template, the id of a chunk or an inner context, or the caller's own.
    """

    kind: Literal["literal", "template", "retrieval", "context", "other"]
    ref: Committed[Any] | None = None


class ItemMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What an item is in a message.

    Neighbours with the same role and turn belong to one message; a tool has no role. Items with the
    same group were kept or dropped together. `data` are the bytes of an image.
    """

    kind: Literal["text", "tool_call", "tool_result", "tool", "image", "reasoning"]
    role: Role | None
    turn: Exact | None
    group: Exact | None
    cache: bool
    data: Committed[Any] | None = None


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate and the decision about it.

    `emitted` is the text in the output if it is not `content`; `short_by` is the number of tokens
    by which the budget was too small to keep the item whole.
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
    message: ItemMessage | msgspec.UnsetType = msgspec.UNSET
    """Absent in a context without messages."""
    group: Exact | msgspec.UnsetType = msgspec.UNSET
    """The group of an item that is not in a message; absent without one."""


class FeatureInput(ReadValue, frozen=True, kw_only=True):
    """One feature value, and how its freshness was judged.

    `current_at` is the moment from which the age counts by the rule, if it is not `as_of`: the
    moment until which no event of the partition waited, the last run, or that of the oldest input.
    With a dead letter (the rule `dead_letter`) there is none. `window` is absent unless the feature
    is one of a family of windows.
    """

    entity_id: Committed[str]
    value: Committed[Any]
    age_ms: Exact | None
    sla_ms: Exact | None


class FeatureRead(FeatureInput, frozen=True, kw_only=True):
    """One feature value that the context read, and the values that it was computed from.

    `used` is False if only templates of dropped items needed it.
    """

    used: bool
    inputs: tuple[FeatureInput, ...] = ()


class IndexRead(msgspec.Struct, frozen=True, kw_only=True):
    """A search of an index: the version that was searched, and what for."""

    name: str
    version: str
    embedder: str | None
    mode: str
    query: Committed[Any]
    filters: Committed[Any] | None


class ChunkOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The document that a chunk is a piece of, and when that version of it was indexed."""

    document: Committed[str] | None
    position: Exact | None
    content_hash: Committed[str] | None
    version: Exact | None
    indexed_at: datetime | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a retriever."""

    id: Committed[Any]
    score: str | None
    content: Committed[Any]
    origin: ChunkOrigin | None = None


class KeptResults(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay needs besides the results to return them in place of a search.

    `metadata` has that of each result, in their order. `features` are the places of the values that
    the search read.
    """

    metadata: Committed[Any]
    features: tuple[Exact, ...] = ()


class Retrieval(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a retriever, or one search of an index."""

    retriever: str
    arguments: Committed[Any]
    index: IndexRead | None
    results: tuple[Result, ...]
    count: Exact
    searched_at: datetime
    age_ms: Exact
    cache_hit: bool
    latency_us: Exact
    sla_ms: Exact | None
    fresh: bool
    failed: bool
    kept: KeptResults | msgspec.UnsetType = msgspec.UNSET
    """Absent unless the retriever is declared with `record=True`."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was read behind the features, retrievals and contexts of a record.

    `name` is that of the entity or the index, or says what else was read.
    """

    kind: Literal["entity", "index", "other"]
    name: str
    entity_id: Committed[str] | None = None


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Something used that was older than its freshness SLA, missing or a default.

    `used_by` is the feature that the context read, if it was computed from this one.
    """

    kind: Literal["feature", "retrieval", "context", "store"]
    name: str
    entity_id: Committed[str] | None = None
    age_ms: Exact | None
    sla_ms: Exact
    reason: ViolationReason
    used_by: str | None = None


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing everything that was read with the SLA."""

    status: FreshnessStatus
    sla_ms: Exact | None
    stalest_ms: Exact | None
    violations: tuple[Violation, ...] = ()


NOT_COUNTED = "not_counted"
"""The name of the loss of a count that a provider should have made."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a provider cannot be sent as it was declared; `item` is its place."""

    name: str
    provider: str
    item: Exact | None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The final text; sealing fills in its hash."""

    content: Committed[str]
    content_hash: str = ""
    tokens: Exact
    items_kept: Exact
    items_dropped: Exact
    items_truncated: Exact
    cost_nano_usd: Exact | None
    overflow: bool
    losses: tuple[Loss, ...] | msgspec.UnsetType = msgspec.UNSET
    """What providers cannot express; absent in a context without messages."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The start and the duration of the assembly."""

    started_at: datetime
    assembly_us: Exact


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """All content of one record."""

    spec: str = SPEC
    version: Exact = 1
    context_id: str
    created_at: datetime
    environment: str
    versions: Versions
    context: Definition
    inputs: dict[str, Committed[Any]]
    interaction_ref: Committed[Any] | None = None
    """The caller's own reference as a whole: its keys may be personal, too.

    Earlier records have an object with a commitment for each key.
    """
    caller: str | None = None
    """The name of the key that assembled it, or None if it was not assembled for a request."""
    policy: Policy
    tokenizer: TokenizerInfo
    items: tuple[Item, ...] = ()
    features: tuple[FeatureRead, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()
    contexts: tuple[NestedLineage, ...] = ()
    sources: tuple[Source, ...] = ()
    freshness: Freshness
    output: Output
    timing: Timing


def disclosed(value: Any) -> Any:
    """Return a value, or None if the core only commits to it."""
    return None if type(value) is Commitment else value


def decimal_text(score: float) -> str:
    """Return a score as the core writes it: all digits, no exponent."""
    number = Decimal(repr(score))
    return format(number, "f") if number.is_finite() else str(number)
