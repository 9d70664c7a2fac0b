"""Contexts and their lineage as callers see them, live or read from a record.

A value that a record withholds is None here, and its pointer is listed in ``withheld``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from headwater.core.short_repr import short_repr
from headwater.errors import InvalidInputError
from headwater.messages.parts import Grade, Message, ModelRequest, Role, TextPart
from headwater.messages.rendering import body
from headwater.messages.turns import Provider
from headwater.model.bound_contexts import BoundContext
from headwater.model.outcomes import Outcome
from headwater.model.values import FreshnessRule, WindowRead

FreshnessStatus = Literal["guaranteed", "degraded", "refused"]
"""The record of a strict context that was not returned has the status `refused`."""

Decision = Literal["kept", "truncated", "dropped"]
ViolationReason = Literal["stale", "missing", "default", "never_ran", "dead_letter", "lost"]


class ReadValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that was read, in a record and in the views of one.

    It has the time that it is of, and its freshness by the rule of its feature. That of a feature
    of a family has its ``window``.
    """

    feature: str
    entity: str
    entity_id: Any
    value: Any
    as_of: datetime | None
    written_at: datetime | None
    source: str
    rule: FreshnessRule
    current_at: datetime | None
    age_ms: int | None
    sla_ms: int | None
    fresh: bool
    window: WindowRead | msgspec.UnsetType = msgspec.UNSET


class InputLineage(ReadValue, frozen=True, kw_only=True):
    """A value: the time that it is of, and its freshness by the rule of its feature.

    `age_ms` is the time since `current_at`, the moment at which the value was known to be current.
    """

    entity_id: str | None


class FeatureLineage(InputLineage, frozen=True, kw_only=True):
    """A feature that was read, with the inputs that its value was computed from.

    `used` is False if only templates of dropped items needed it.
    """

    used: bool
    inputs: Sequence[InputLineage]


class ChunkLineage(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that a search found; of an index, also the document and version it comes from.

    `age_ms` is the time since `indexed_at`.
    """

    id: Any
    score: str | None
    document: str | None = None
    position: int | None = None
    content_hash: str | None = None
    version: int | None = None
    indexed_at: datetime | None = None
    age_ms: int | None = None


class RetrieverLineage(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a retriever: its arguments, the number and the age of its results, its latency.

    If it searched an index, `index_version` is the version that it searched, `query` and `filters`
    are those of the search. `age_ms` is the time since the search: cached results have an age. A
    call that `failed` has no results.
    """

    retriever: str
    arguments: Mapping[str, Any] | None
    count: int
    latency_ms: float
    cache_hit: bool
    searched_at: datetime
    age_ms: int
    sla_ms: int | None
    fresh: bool
    failed: bool
    index: str | None = None
    index_version: str | None = None
    embedder: str | None = None
    mode: str | None = None
    query: str | None = None
    filters: Mapping[str, Any] | None = None
    results: Sequence[ChunkLineage]


class NestedLineage(msgspec.Struct, frozen=True, kw_only=True):
    """A context that was assembled inside another."""

    context_id: str
    record_hash: str
    name: str
    freshness_status: FreshnessStatus


class ItemLineage(msgspec.Struct, frozen=True, kw_only=True):
    """An item that was offered to the context, and the decision about it."""

    decision: Decision
    reason: str
    priority: int
    required: bool
    section: str | None
    tokens: int
    emitted_tokens: int
    short_by: int


class ContextLineage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a context read and was offered, its tokens, its cost and its duration.

    `caller` is the name of the key that assembled it, or None outside of requests.
    """

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
    caller: str | None

    __repr__ = short_repr("items_included", "items_dropped", "tokens", "stalest_ms")


class FreshnessViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A value that was older than its SLA, missing, or only a default.

    `used_by` is the feature that the context read, if that was computed from this one.
    """

    kind: Literal["feature", "retrieval", "context", "store"]
    name: str
    entity_id: str | None
    age_ms: int | None
    sla_ms: int
    reason: ViolationReason
    used_by: str | None


class ContextFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that live contexts, past contexts and explanations share."""

    content: str | None
    context_id: str
    record_hash: str
    content_hash: str
    name: str
    created_at: datetime
    tokens: int
    cost_nano_usd: int | None
    freshness_status: FreshnessStatus
    freshness_violations: Sequence[FreshnessViolation]
    freshness_sla_ms: int | None
    interaction_ref: Mapping[str, Any] | None
    model: str | None = None
    max_output: int | None = None
    """The tokens that are reserved for the answer."""
    request: ModelRequest | None = None
    """What a model is sent, if the context is messages and the record withholds none of them."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages; those of a context without roles are one of the user."""
        return self._request.messages

    @property
    def _request(self) -> ModelRequest:
        if self.request is not None:
            return self.request
        if self.content is None:
            raise InvalidInputError(
                f"the record of context {self.context_id} withholds its messages; only its hash is "
                "stored"
            )
        return ModelRequest(
            messages=(Message(role="user", parts=(TextPart(content=self.content),)),),
            model=self.model,
            max_output=self.max_output,
            cache_key=self.name,
        )

    def to_openai(self) -> dict[str, Any]:
        """Return the body of a request to OpenAI's Chat Completions, or to a compatible server.

        ``await client.chat.completions.create(**ctx.to_openai())``; pass ``model=`` beside it if
        the context has none. What the API cannot express is a loss in the record, and a warning in
        the log.

        >>> ctx = await support("ada", "When does it arrive?")
        >>> [message["role"] for message in ctx.to_openai()["messages"]]
        ['user']
        """
        return self._body("openai")

    def to_openai_responses(self) -> dict[str, Any]:
        """Return the body of a request to OpenAI's Responses.

        ``await client.responses.create(**ctx.to_openai_responses())``

        >>> ctx = await support("ada", "When does it arrive?")
        >>> [item["role"] for item in ctx.to_openai_responses()["input"]]
        ['user']
        """
        return self._body("openai_responses")

    def to_anthropic(self) -> dict[str, Any]:
        """Return the body of a request to Anthropic's Messages.

        ``await client.messages.create(**ctx.to_anthropic())``. The API needs a limit of the answer;
        without ``max_output`` it is 4,096 tokens.

        >>> ctx = await support("ada", "When does it arrive?")
        >>> ctx.to_anthropic()["max_tokens"]
        4096
        """
        return self._body("anthropic")

    def to_gemini(self) -> dict[str, Any]:
        """Return the body of a request to Gemini.

        ``await client.aio.models.generate_content(**ctx.to_gemini())``

        >>> ctx = await support("ada", "When does it arrive?")
        >>> [content["role"] for content in ctx.to_gemini()["contents"]]
        ['user']
        """
        return self._body("gemini")

    def to_prompt(self, folder: str | Path) -> str:
        """Return the text that an open model reads, up to where its answer begins.

        Needs the extra ``chat``.

        Args:
            folder: The folder of the model, with its tokenizer and its chat template.

        Raises:
            InvalidInputError: The template refuses these messages.
        """
        from headwater.messages.chat_templates import (  # noqa: PLC0415 - loads a tokenizer
            load_chat_template,
        )

        return load_chat_template(str(folder)).render(self._request, self.created_at)

    def _body(self, provider: Provider) -> dict[str, Any]:
        return body(self._request, provider, context=self.name, context_id=self.context_id)

    @property
    def is_fresh(self) -> bool:
        """True if everything that the context read was as fresh as its SLA requires."""
        return self.freshness_status == "guaranteed"

    def __repr__(self) -> str:
        kind, state = type(self).__name__, self.freshness_status
        return f"<{kind} {self.name!r} {self.context_id}: {self.tokens} tokens, {state}>"


class RecordFacts(ContextFacts, frozen=True, kw_only=True):
    """The fields that only a stored record can fill."""

    version: str | None
    environment: str
    caller: str | None
    inputs: Mapping[str, Any]
    signed_by: str | None
    withheld: Sequence[str]
    redacted: Sequence[str]
    outcomes: Sequence[Outcome] = ()
    """What became of it, the oldest first; 1,000 at most."""


class Context(ContextFacts, BoundContext, frozen=True, kw_only=True, dict=True):
    """An assembled context: its text, its lineage and the hashes that prove both."""

    content: str
    lineage: ContextLineage
    meta: Mapping[str, Any]

    def __str__(self) -> str:
        return self.content

    def _repr_html_(self) -> str:
        """Return the context as HTML, which notebooks show."""
        return _html(self, self.lineage)


class PastContext(RecordFacts, BoundContext, frozen=True, kw_only=True, dict=True):
    """A context read from its record."""

    lineage: ContextLineage
    meta: Mapping[str, Any]

    def __str__(self) -> str:
        return f"(withheld: {self.content_hash})" if self.content is None else self.content

    def _repr_html_(self) -> str:
        """Return the context as HTML, which notebooks show."""
        return _html(self, self.lineage)


def _html(context: ContextFacts, lineage: ContextLineage) -> str:
    from headwater.model.context_html import context_html  # noqa: PLC0415 - only in notebooks

    return context_html(context, lineage)


class TextSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Characters of an item's text that came from a feature, as Unicode code points.

    `read` is the place of the feature among those that were read; `input` is the place of the value
    among the inputs of that feature, if it came through a feature that is a template itself.
    """

    start: int
    end: int
    feature: str
    read: int
    input: int | None = None


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What an item is in a message; `number` is the place of the message, None for a tool.

    Items with the same `group` were kept or dropped together. `image` are the bytes of an image.
    """

    kind: str
    role: Role | None
    number: int | None
    turn: int | None
    group: int | None
    cache: bool
    image: bytes | None = None


class CountTrace(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens were counted: by the model's tokenizer, the provider or an estimate.

    `source` is the tokenizer, table or endpoint; `envelope_tokens` are those around the items, and
    None if they cannot be counted.
    """

    grade: Grade
    source: str
    envelope_tokens: int | None


class LossTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a provider cannot be sent as it was declared; `item` is its place."""

    name: str
    provider: str
    item: int | None


class ItemTrace(ItemLineage, frozen=True, kw_only=True):
    """An item with its text, its source, and the reason for the decision in words.

    `source_ref` is the text of a template, the id of a chunk or of an inner context, or the source
    that the context gave. `reads` are the places of the features that a template reads; a `span` is
    a range of `emitted` or, if the item was dropped, of `content`. `width` is the number of tokens
    that the item adds to the text, with its separator; None if it is not in the text or cannot be
    counted, because texts are withheld or the tokenizer has changed.
    """

    content: str | None
    emitted: str | None
    truncate: bool
    source_kind: str
    source_ref: Any
    why: str
    reads: Sequence[int] = ()
    spans: Sequence[TextSpan] = ()
    width: int | None = None
    message: MessageTrace | None = None


class ResultTrace(ChunkLineage, frozen=True, kw_only=True):
    """A chunk that a search found, with its text.

    Its metadata are recorded if the retriever is declared with ``record=True``.
    """

    content: str | None
    metadata: Mapping[str, Any] | None = None


class RetrieverTrace(RetrieverLineage, frozen=True, kw_only=True):
    """One call of a retriever, with its results."""

    results: Sequence[ResultTrace]


class ContextTrace(RecordFacts, frozen=True, kw_only=True):
    """The explanation of a context: every item, read and rule, with reasons.

    `short_by` is the number of tokens by which the budget was too small to keep all items whole;
    None if it cannot be counted.
    """

    definition: str | None
    versions: Mapping[str, str | None]
    summary: str
    warnings: Sequence[str]
    items: Sequence[ItemTrace]
    features: Sequence[FeatureLineage]
    retrievers: Sequence[RetrieverTrace]
    contexts: Sequence[NestedLineage]
    max_tokens: int | None
    short_by: int | None
    overflow: bool
    separator: str
    on_overflow: str
    backfill: bool
    tokenizer: str
    exact: bool
    margin_percent: int
    count: CountTrace
    losses: Sequence[LossTrace]
    freshness_strict: bool
    stalest_ms: int | None
    started_at: datetime
    assembly_ms: float
