"""Spans of assembling a context: reads, searches, embeddings, fitting and the record.

Each function describes a call of a method by its arguments: the name and attributes of its span.
Reads and searches outside of a trace begin none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headwater.contexts.budget import Candidate, Fitted
from headwater.contexts.recorded.external import EXTERNAL
from headwater.core.codec import encode_custom
from headwater.core.tracing import Attributes, Span
from headwater.declarations.contexts import ContextDef
from headwater.declarations.indexes import IndexDef
from headwater.declarations.interceptors import SearchResult
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import RetrieverDef, SearchOptions
from headwater.model.lineage import Context
from headwater.ports import Hits, StoredRecord, VectorQuery
from headwater.retrieval.embeddings import Embedder
from headwater.telemetry import attributes as names

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


class Described(NamedTuple):
    """A call: the name of its span, its attributes, and the content that it may export."""

    name: str
    attributes: Attributes
    content: Callable[[], Attributes] = dict


def assemble(
    definition: ContextDef, arguments: Sequence[Any], named: Mapping[str, Any], _: object
) -> Described:
    """Describe the assembly of a context; callers choose the names of those recorded for others."""
    return Described(
        "assemble" if definition.location == EXTERNAL else f"assemble {definition.name}",
        {names.CONTEXT: definition.name, names.GEN_AI_MODEL: definition.model},
        lambda: {names.CONTEXT_INPUTS: repr([*arguments, *named.items()])},
    )


def assembled(span: Span, context: Context) -> None:
    """Add the record and the freshness of a context."""
    span.set(
        {
            names.CONTEXT_ID: context.context_id,
            names.RECORD_HASH: context.record_hash,
            names.IS_RECORDED: context.meta["recorded"],
            names.FRESHNESS: context.freshness_status,
            names.STALEST_MS: context.lineage.stalest_ms,
            names.VIOLATIONS: [violation.name for violation in context.freshness_violations],
            names.GEN_AI_INPUT_TOKENS: context.tokens,
        }
    )
    span.set_content(lambda: {names.CONTEXT_TEXT: context.content})


def fit(candidates: Sequence[Candidate], *_: object) -> Described:
    """Describe the choice of items."""
    return Described("fit", {names.ITEMS: len(candidates)})


def fitted(span: Span, result: Fitted) -> None:
    """Add the number of tokens and of dropped items."""
    dropped = sum(choice.decision == "dropped" for choice in result.choices)
    span.set({names.GEN_AI_INPUT_TOKENS: result.tokens, names.ITEMS_DROPPED: dropped})


def record(stored: StoredRecord, _: Collection[bytes]) -> Described:
    """Describe the storing of a record."""
    return Described(
        "record",
        {
            names.CONTEXT: stored.name,
            names.CONTEXT_ID: stored.context_id,
            names.RECORD_HASH: stored.record_hash,
            names.FRESHNESS: stored.freshness_status,
        },
    )


def read(entity: str, entity_ids: Sequence[str]) -> Described:
    """Describe a read of current values."""
    return Described(
        f"read {entity}",
        {names.ENTITY: entity, names.ENTITY_COUNT: len(entity_ids)},
        lambda: {names.ENTITY_ID: list(entity_ids)},
    )


def retrieve(retriever: RetrieverDef, *_: object) -> Described:
    """Describe a call of a retriever."""
    attributes = {names.RETRIEVER: retriever.name, names.GEN_AI_OPERATION: "retrieval"}
    return Described(f"retrieve {retriever.name}", attributes)


def retrieved(span: Span, chunks: list[Chunk]) -> None:
    """Add the number of results."""
    span.set({names.RESULTS: len(chunks)})
    span.set_content(lambda: _documents(chunks))


def search(index: IndexDef, query: str, options: SearchOptions, *_: object) -> Described:
    """Describe a search of an index."""
    return Described(
        f"search {index.name}",
        {
            names.GEN_AI_OPERATION: "retrieval",
            names.GEN_AI_DATA_SOURCE: index.name,
            names.GEN_AI_TOP_K: options.top_k,
            names.SEARCH_MODE: options.mode,
        },
        lambda: {names.QUERY: query},
    )


def searched(span: Span, result: SearchResult) -> None:
    """Add the number of results."""
    retrieved(span, result.chunks)


def query(searched: VectorQuery) -> Described:
    """Describe a query of chunks, by an embedding or by words."""
    how = "words" if searched.embedding is None else "vectors"
    return Described(f"query {how}", {names.GEN_AI_DATA_SOURCE: searched.index})


def queried(span: Span, hits: Hits) -> None:
    """Add the number of chunks."""
    span.set({names.RESULTS: len(hits.hits)})


def embed(embedder: Embedder, texts: Sequence[str], kind: str) -> Described:
    """Describe the embedding of texts."""
    name = embedder.name
    provider, _, model = name.partition("/")
    return Described(
        f"embeddings {name}",
        {
            names.GEN_AI_OPERATION: "embeddings",
            names.GEN_AI_PROVIDER: provider,
            names.GEN_AI_MODEL: model or name,
            names.GEN_AI_DIMENSIONS: embedder.dimensions,
            names.TEXTS: len(texts),
        },
        lambda: {names.QUERY: texts[0]} if kind == "query" else {},
    )


def _documents(chunks: Sequence[Chunk]) -> Mapping[str, Any]:
    documents = [{"id": chunk.id, "score": chunk.score, "content": chunk.text} for chunk in chunks]
    return {names.DOCUMENTS: _encode(documents).decode()}
