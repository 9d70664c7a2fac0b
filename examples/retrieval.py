"""Help articles that are found by meaning: an event indexes them, a retriever searches them.

A cached search belongs to one version of the index, so a changed article is in the next context.

    python examples/retrieval.py             run it in a temporary folder
    headwater serve examples/retrieval.py    serve it, then POST /v1/search/help
"""

import asyncio

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.testing import temporary

store = FeatureStore()
Index(store, "help", chunk_tokens=200, overlap=20)

ARTICLES = {
    "delivery": "A parcel within the country takes two days, one to another country five.",
    "refunds": "A refund is paid within a week, to the card that was charged.",
    "warranty": "Our tools carry a warranty of three years. Bring the receipt.",
}
QUESTION = "When do I get my money back?"


@entity(store)
class Article:
    article_id: str


@feature(entity=Article, trigger="article_saved")
async def index_article(article_id: str, event: ServiceEvent) -> None:
    """Index the text of an article, in the transaction of its event."""
    await store.index("help", article_id, event.payload["text"], {"audience": "customers"})


@retriever(store, index="help", top_k=1, cache_ttl="10m", filters={"audience": "customers"})
def search_help(question: str) -> list[Chunk]: ...


@context(store, max_tokens=100, model="gpt-4o")
async def answer(question: str) -> list[ContextItem]:
    """The article that answers a question, and the question."""
    found = await search_help(question)
    return [
        *(ContextItem(chunk.text, priority=50, source=chunk) for chunk in found),
        ContextItem(f"Question: {question}", required=True),
    ]


async def save(article: str, text: str) -> None:
    await store.publish("article_saved", article, {"text": text})
    await store.drain()


async def main() -> None:
    async with temporary(store):
        for article, text in ARTICLES.items():
            await save(article, text)
        print(await answer(QUESTION))
        (best,) = await search_help(QUESTION)
        print(f"\nfound {best.document} with a score of {best.score:.2f}")

        await save("refunds", "A refund is paid within two days, to the card that was charged.")
        made = await answer(QUESTION)
        (search,) = made.lineage.retrievers
        print(f"the next context has the new text: {'two days' in made.content}")
        print(f"searched {search.index} at version {search.index_version}")

        used = await store.records.find(document="refunds")
        print(f"contexts that used the article: {len(used.contexts)}")


if __name__ == "__main__":
    asyncio.run(main())
