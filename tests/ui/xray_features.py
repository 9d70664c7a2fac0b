"""The features of a store whose contexts show everything that an X-ray has to show."""

from __future__ import annotations

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

store = FeatureStore()
Index(store, "help", embedder="lexical")


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase", default=0.0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id)
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="named", default="somebody")
def full_name(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["name"])


@feature(
    entity=User,
    refresh="1h",
    materialize=True,
    default=0,
    freshness_sla="1ms",
    sql="SELECT 'ada' AS user_id, 7 AS value",
)
def past_orders(user_id: str) -> int: ...


@feature(entity=User, template="{full_name}: {total_spend} spent, {past_orders} past orders")
def profile(user_id: str) -> str: ...


@retriever(store, index="help", top_k=3, cache_ttl="5m")
def search_help(question: str) -> list[Chunk]: ...


@context(store, max_tokens=90, freshness_sla="5m", model="gpt-4o", version="2")
async def support(user_id: str, question: str) -> list[ContextItem]:
    return [
        ContextItem("You answer for a small shop. Be brief.", required=True),
        ContextItem.template("Who asks: {profile}.", priority=80),
        *(
            ContextItem(chunk.text, priority=50 - rank, source=chunk)
            for rank, chunk in enumerate(await search_help(question))
        ),
        ContextItem(f"Question: {question}", required=True, section="question"),
        ContextItem("A long closing remark that may be cut at any word. " * 6, truncate=True),
    ]


@context(store)
async def greeting(user_id: str) -> str:
    return f"Hello {await full_name.get(user_id)}"


@context(store, model="gpt-4o")
async def outer(user_id: str) -> list[ContextItem]:
    inner = await greeting(user_id)
    return [
        ContextItem(str(inner), source=inner),
        ContextItem("from elsewhere", source={"page": 7}),
        ContextItem("a fixed text"),
    ]


@context(store, max_tokens=6_000, model="gpt-4o")
async def crowd(user_id: str, count: int) -> list[ContextItem]:
    return [
        ContextItem.template(f"Item {number} for {{full_name}}.", priority=number % 100)
        for number in range(count)
    ]


@context(store)
async def echo(user_id: str, text: str) -> list[ContextItem]:
    return [
        ContextItem.template("Name: {full_name}"),
        ContextItem(text, section=text[:60]),
        ContextItem(text, source={text: text}),
    ]
