"""A store with an index of three articles and a retriever."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater import Chunk, FeatureStore, Index, retriever
from headwater.declarations.contexts import RetrieverFunction

ARTICLES = {
    "delivery": "A parcel takes two days.",
    "refunds": "A refund is paid within a week, to the card that was charged.",
    "warranty": "Our tools carry a warranty of three years.",
}

SearchArticles = RetrieverFunction[[str, str]]


@pytest.fixture
def search_articles(store: FeatureStore) -> SearchArticles:
    """Return the retriever."""
    Index(store, "articles", embedder="lexical")

    @retriever(store, index="articles", top_k=2, cache_ttl="5m", filters={"lang": "{lang}"})
    def search_articles(query: str, lang: str = "en") -> list[Chunk]: ...  # type: ignore[empty-body]

    return search_articles


@pytest.fixture
def index_articles(
    store: FeatureStore, search_articles: SearchArticles
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function that indexes the articles."""

    async def index_articles() -> None:
        for document, text in ARTICLES.items():
            await store.index("articles", document, text, {"lang": "en", "title": document.title()})

    return index_articles
