"""The help centre as indexes: all its passages, and the ranking of every judged query."""

from collections.abc import Mapping, Sequence
from typing import Literal

from headwater import Document, FeatureStore, Index
from headwater.model.indexes import SearchMode
from tests.retrieval.quality.judgements import CUT, JudgedQuery, Rankings, passages, queries

Method = Literal["text", "vector", "hybrid", "fallback"]

METHODS: Mapping[Method, tuple[str, SearchMode]] = {
    "text": ("by_meaning", "text"),
    "vector": ("by_meaning", "vector"),
    "hybrid": ("by_meaning", "hybrid"),
    "fallback": ("by_words", "vector"),
}
"""The index that each method of searching reads, and its mode."""


def declare(store: FeatureStore) -> None:
    """Declare an index with the local model, and one with the embedder that replaces it."""
    Index(store, "by_meaning", embedder="local")
    Index(store, "by_words", embedder="lexical")


async def fill(store: FeatureStore, asked: Sequence[JudgedQuery] = ()) -> None:
    """Index all passages, or those that are relevant to some queries."""
    relevant = {passage for query in asked for passage in query.relevant}
    documents = [
        Document(each.id, each.text) for each in passages() if not asked or each.id in relevant
    ]
    for index in ("by_meaning", "by_words"):
        await store.indexes.load(index, documents)


async def rankings(
    store: FeatureStore, method: Method, asked: Sequence[JudgedQuery] = ()
) -> Rankings:
    """Return the documents that each query finds, of all or of some."""
    index, mode = METHODS[method]
    ranked = []
    for query in asked or queries():
        found = await store.search(index, query.query, top_k=CUT, mode=mode)
        ranked.append((query, [chunk.document or "" for chunk in found]))
    return ranked
