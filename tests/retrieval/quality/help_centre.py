"""The help centre as indexes: all its passages, and the ranking of every judged query."""

from collections.abc import Mapping
from typing import Literal

from headwater import Document, FeatureStore, Index
from headwater.model.indexes import SearchMode
from tests.retrieval.quality.judgements import CUT, Rankings, passages, queries

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


async def fill(store: FeatureStore) -> None:
    """Index all passages."""
    for index in ("by_meaning", "by_words"):
        await store.indexes.load(index, [Document(each.id, each.text) for each in passages()])


async def rankings(store: FeatureStore, method: Method) -> Rankings:
    """Return the documents that each query finds."""
    index, mode = METHODS[method]
    ranked = []
    for query in queries():
        found = await store.search(index, query.query, top_k=CUT, mode=mode)
        ranked.append((query, [chunk.document or "" for chunk in found]))
    return ranked
