"""A context for a support agent: features and articles within a token budget.

Headwater tracks everything that `support` reads. Items of the lowest priority are dropped first,
and the record of every context can be verified later.

    python examples/contexts.py             run it in a temporary folder
    headwater serve examples/contexts.py    serve it, then POST /v1/contexts/support
"""

import asyncio
from datetime import timedelta

from headwater import (
    Context,
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.testing import temporary

store = FeatureStore()

ARTICLES = {
    "parcel": "If a parcel has not moved for three days, its carrier searches for it.",
    "refund": "A refund arrives within five days, by the same means of payment.",
    "plan": "Customers of the gold plan may call at any hour.",
}


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="subscribed")
async def plan(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["plan"])


@feature(entity=User, trigger="ordered", default=0)
async def orders(user_id: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("orders", user_id)
    return before + 1


@feature(entity=User, template="{plan} customer with {orders} orders")
def blurb(user_id: str) -> str: ...


@retriever(store, cache_ttl="10m", top_k=3)
def search_articles(question: str) -> list[dict[str, str]]:
    """Return the articles about words of the question. A real one would call a search engine."""
    words = question.lower().rstrip("?").split()
    return [{"id": word, "text": ARTICLES[word]} for word in words if word in ARTICLES]


@context(store, max_tokens=60, freshness_sla=timedelta(minutes=5), model="gpt-4o")
async def support(user_id: str, question: str) -> list[ContextItem]:
    """Everything that the model needs to answer a question."""
    found = await search_articles(question)
    return [
        ContextItem("You are a support agent. Be brief.", priority=100, required=True),
        ContextItem.template("The customer: {blurb}.", priority=80),
        *(ContextItem(article.text, priority=50, source=article) for article in found),
        ContextItem("Our office hours are from nine to five. " * 9, priority=1),
    ]


def print_context(made: Context) -> None:
    print(made.content)
    print()
    print(f"{made.tokens} tokens of {made.lineage.max_tokens}, {made.freshness_status}")
    print(f"{made.lineage.items_dropped} of {made.lineage.items_provided} items dropped")
    for read in made.lineage.features:
        print(f"read {read.feature} of {read.entity_id}: {read.value}")
    for search in made.lineage.retrievers:
        print(f"searched {search.retriever}: {search.count} found, from cache: {search.cache_hit}")


async def main() -> None:
    async with temporary(store):
        await store.publish("subscribed", "u1", {"plan": "gold"})
        await store.publish("ordered", "u1")
        await store.drain()

        made = await support("u1", "Where is my parcel?")
        print_context(made)

        report = await store.records.verify(made.record_hash or "")
        print(f"the record is valid: {report.ok}")

        smaller = await support.options(max_tokens=25)("u1", "Where is my parcel?")
        print(f"with a smaller budget: {smaller.tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
