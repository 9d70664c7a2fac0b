"""The features of the shop that the tests of the web UI serve; loaded by the server's process."""

import shutil
from typing import Annotated, Literal

from msgspec import Meta

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    event,
    feature,
    retriever,
)

_disk_usage = shutil.disk_usage
# The machine may have little free space, which would need attention.
shutil.disk_usage = lambda path: _disk_usage(path)._replace(free=100 << 30)
store = FeatureStore()
Index(store, "help", embedder="lexical")


@entity(store)
class User:
    """A customer."""

    user_id: str


@entity(store)
class Product:
    sku: str


@event(store, "review")
class Review:
    """What a customer says about a product."""

    stars: Annotated[int, Meta(ge=1, le=5, description="From 1 to 5.")]
    channel: Literal["web", "shop"]
    text: str = ""
    verified: bool = False
    tags: list[str] | None = None


@feature(entity=User, trigger=["purchase", "refund"], default=0.0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    """What a customer has spent, without refunds."""
    before: float = await store.get_feature("total_spend", user_id)
    amount = float(event.payload["amount"])
    return round(before - amount if event.event_type == "refund" else before + amount, 2)


@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("visits", user_id)
    return before + 1


@feature(entity=User, trigger="signed_up")
def name(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["name"])


@feature(entity=User)
async def tier(user_id: str) -> str:
    """Gold from 100 on."""
    return "gold" if await store.get_feature("total_spend", user_id) >= 100 else "silver"


@feature(
    entity=User,
    refresh="1h",
    materialize=True,
    default=0,
    freshness_sla="2h",
    sql="SELECT 'ada' AS user_id, 7 AS value",
)
def past_orders(user_id: str) -> int: ...


@feature(entity=User, template="{name}, {tier} customer: {total_spend} EUR, {visits} visits")
def blurb(user_id: str) -> str: ...


@feature(entity=User, trigger="checkout", max_retries=0)
def shipping_fee(user_id: str, event: ServiceEvent) -> float:
    """Fails for unknown countries, so that there are dead letters."""
    rates = {"DE": 4.9, "AT": 6.9}
    return rates[event.payload["country"]] * float(event.payload["kg"])


@feature(entity=Product, trigger="stock_counted", freshness_sla="1ms")
def stock(sku: str, event: ServiceEvent) -> int:
    return int(event.payload["units"])


@feature(entity=Product, trigger="stock_counted", max_retries=0)
def shelf(sku: str, event: ServiceEvent) -> str:
    return str(event.payload["shelf"])


@retriever(store, index="help", top_k=3, cache_ttl="5m")
def search_help(question: str) -> list[Chunk]: ...


@context(store, max_tokens=72, freshness_sla="1h", model="gpt-4o")
async def support(user_id: str, question: str) -> list[ContextItem]:
    """The context of the support agent."""
    return [
        ContextItem("You are the support agent of a small shop. Be brief.", required=True),
        ContextItem.template("Customer: {blurb}.", priority=80),
        *(
            ContextItem(chunk.text, priority=50 - rank, source=chunk)
            for rank, chunk in enumerate(await search_help(question))
        ),
        ContextItem(f"Question: {question}", required=True),
    ]


@context(store, max_tokens=1_000_000)
async def letter(user_id: str, text: str) -> list[ContextItem]:
    """A context that has room for any text."""
    return [
        ContextItem.template("To {blurb}", required=True),
        ContextItem(text, required=True),
        *(ContextItem(chunk.text, source=chunk) for chunk in await search_help(text[:200])),
    ]


@context(store, max_tokens=200, freshness_sla="1s")
async def restock(sku: str) -> list[ContextItem]:
    """A context whose value is older than it may be."""
    units = await store.get_feature("stock", sku)
    return [ContextItem(f"{units} units of {sku} are in stock.", required=True)]


@context(store, max_tokens=1_000_000)
async def many_items(count: int) -> list[ContextItem]:
    """A context with as many items as asked for."""
    return [
        ContextItem(f"Item {number} of {count}.", priority=number % 100) for number in range(count)
    ]
