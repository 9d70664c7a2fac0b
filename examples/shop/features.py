"""The features of an outdoor shop, which `headwater demo --keep` serves with a week of data."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict

from headwater import (
    Chunk,
    Context,
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
for _name in ("customers", "suppliers"):
    store.source(_name, Path(__file__).with_name(f"{_name}.csv"))

help_pages = Index(store, "help", chunk_tokens=48, overlap=0)


@entity(store)
class User:
    user_id: str


@entity(store)
class Product:
    sku: str


@entity(store)
class Country:
    country: str


@entity(store)
class Article:
    article_id: str


@entity(store)
class Assistant:
    """A context whose answers customers rate."""

    assistant: str


@dataclass
class Purchase:
    category: str
    amount: float


class Payment(TypedDict):
    amount: float
    card_country: str
    ok: bool
    at: datetime


# Customers


@feature(entity=User, trigger="signed_up", default="unknown", freshness="caught_up")
def name(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["name"])


@feature(entity=User, trigger="signed_up", default="unknown", freshness="caught_up")
def country(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["country"])


@feature(entity=User, trigger=["purchase", "refund"], default=0.0, freshness="caught_up")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id)
    amount = float(event.payload["amount"])
    return round(before - amount if event.event_type == "refund" else before + amount, 2)


@feature(entity=User, trigger="purchase", default=0, freshness="caught_up")
async def orders(user_id: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("orders", user_id)
    return before + 1


@feature(
    entity=User,
    trigger="purchase",
    window=["1h", "24h", "7d"],
    aggregate=["count", "sum", "avg", "max", "p95", "last(3)"],
    freshness="caught_up",
)
def spend(user_id: str, event: ServiceEvent) -> float:
    """What a customer spends: each aggregate of each window is a feature of its own."""
    return float(event.payload["amount"])


@feature(
    entity=User,
    trigger="purchase",
    window=["24h", "7d"],
    aggregate=["sum", "count"],
    value="amount",
    by="category",
    freshness="caught_up",
)
def bought(user_id: str, event: ServiceEvent) -> Purchase:
    """The same for each category of products."""
    return Purchase(str(event.payload.get("category", "none")), float(event.payload["amount"]))


@feature(
    entity=User,
    trigger="page_viewed",
    ttl="30m",
    order="event_time",
    default="unknown",
    freshness="caught_up",
)
def device(user_id: str, event: ServiceEvent) -> str:
    """The device in use, unknown after half an hour."""
    return str(event.payload["device"])


@feature(entity=User, trigger="page_viewed", default=[], freshness="caught_up")
async def recently_viewed(user_id: str, event: ServiceEvent) -> list[str]:
    seen: list[str] = await store.get_feature("recently_viewed", user_id)
    sku = str(event.payload["sku"])
    return [sku, *(each for each in seen if each != sku)][:5]


@feature(entity=User, trigger="message_sent", freshness="caught_up")
def last_message(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["text"])


@feature(
    entity=User,
    refresh="4h",
    materialize=True,
    default=0,
    freshness="caught_up",
    freshness_sla="1d",
    sql="SELECT user_id, past_orders AS value FROM customers",
)
def past_orders(user_id: str) -> int: ...


@feature(entity=User, derived=True)
async def tier(user_id: str) -> str:
    read = await store.get_features(["total_spend", "past_orders"], [user_id])
    spent, before = read[user_id]["total_spend"], read[user_id]["past_orders"]
    if spent >= 800 or before >= 12:
        return "gold"
    return "silver" if spent >= 200 or before >= 4 else "bronze"


@feature(entity=User, refresh="12h", materialize=True)
async def churn_risk(user_id: str) -> float:
    """The risk that a customer does not come back, from 0 to 1."""
    read = await store.get_features(["orders", "past_orders", "recently_viewed"], [user_id])
    values = read[user_id]
    interest = values["orders"] * 2 + values["past_orders"] / 4 + len(values["recently_viewed"])
    return float(round(1 / (1 + interest), 3))


@feature(
    entity=User,
    template="{name} from {country}, {tier} customer: {orders} orders this week for {total_spend} "
    "EUR, {past_orders} before",
)
def profile(user_id: str) -> str: ...


# Checkout and payment


@feature(entity=Country, trigger="rate_set")
def shipping_rate(country: str, event: ServiceEvent) -> float:
    return float(event.payload["per_kg"])


@feature(entity=User, trigger="checkout", max_retries=1)
async def shipping_fee(user_id: str, event: ServiceEvent) -> float:
    to = event.payload["country"]
    rate = await store.get_feature("shipping_rate", to)
    if rate is None:
        raise LookupError(f"no shipping rate for {to}")
    return float(round(rate * event.payload["kg"], 2))


@feature(entity=User, trigger="payment_attempted", default=[], freshness="caught_up", max_retries=0)
async def payments_of_an_hour(user_id: str, event: ServiceEvent) -> list[Payment]:
    made: list[Payment] = await store.get_feature("payments_of_an_hour", user_id)
    since = event.timestamp - timedelta(hours=1)
    latest = Payment(
        amount=float(event.payload["amount"]),
        card_country=event.payload["card_country"],
        ok=event.payload["ok"],
        at=event.timestamp,
    )
    return [*(each for each in made if each["at"] > since), latest]


@feature(entity=User, log=True)
async def fraud_score(user_id: str) -> float:
    """How much the payments of the last hour look like fraud, from 0 to 1."""
    made: list[Payment] = await store.get_feature("payments_of_an_hour", user_id)
    refused = sum(not each["ok"] for each in made)
    countries = len({each["card_country"] for each in made})
    largest = max((each["amount"] for each in made), default=0.0)
    return round(min(1.0, 0.22 * refused + 0.25 * max(0, countries - 1) + largest / 4000), 2)


# Products


@feature(entity=Product, trigger="price_set", freshness="caught_up")
def price(sku: str, event: ServiceEvent) -> float:
    return float(event.payload["price"])


@feature(
    entity=Product,
    refresh="2h",
    materialize=True,
    freshness_sla="5h",
    sql="SELECT sku, lead_days AS value FROM suppliers",
)
def lead_days(sku: str) -> int: ...


@feature(entity=Product, trigger="stock_counted", freshness="caught_up")
def stock(sku: str, event: ServiceEvent) -> int:
    return int(event.payload["units"])


@feature(entity=Product, trigger="shop_sale", max_retries=0)
def sold_in_shops(sku: str, event: ServiceEvent) -> int:
    """The units of the last receipt; tills send its lines as JSON in a text."""
    return sum(line["units"] for line in json.loads(event.payload["lines"]))


@feature(entity=Product)
async def offer(sku: str) -> str:
    """The price, and when the product can be had; only sold out ones need their supplier."""
    read = await store.get_features(["price", "stock"], [sku])
    text = f"{read[sku]['price']} EUR, "
    if read[sku]["stock"]:
        return text + f"{read[sku]['stock']} in stock"
    return text + f"sold out, {await store.get_feature('lead_days', sku)} days"


# Help pages


@feature(entity=Article, trigger="article_saved")
async def index_article(article_id: str, event: ServiceEvent) -> None:
    metadata = {"topic": event.payload.get("topic", "general")}
    await store.index(help_pages, article_id, event.payload["text"], metadata)


@retriever(store, index="help", top_k=4, cache_ttl="10m")
def search_help(question: str) -> list[Chunk]: ...


@retriever(store, index="help", filters={"topic": "start"}, mode="text", top_k=2)
def search_first_steps(query: str) -> list[Chunk]: ...


# Outcomes


@feature(entity=Assistant, trigger="answer_rated", default=0)
async def ratings(assistant: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("ratings", assistant)
    return before + 1


@feature(entity=Assistant, trigger="answer_rated", default=0)
async def helpful(assistant: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("helpful", assistant)
    return before + bool(event.payload["helpful"])


@feature(entity=Assistant, derived=True)
async def helpful_share(assistant: str) -> float | None:
    """The share of rated answers that helped."""
    read = await store.get_features(["ratings", "helpful"], [assistant])
    rated = read[assistant]["ratings"]
    return round(read[assistant]["helpful"] / rated, 3) if rated else None


# Contexts


@context(store, max_tokens=105, model="gpt-4o-mini", freshness_sla="1d", version="2")
async def customer_brief(user_id: str) -> list[ContextItem]:
    """A customer in a few lines, for other contexts."""
    seen = await store.get_feature("recently_viewed", user_id)
    said = await store.get_feature("last_message", user_id)
    items = [ContextItem.template("Customer: {profile}.", required=True, section="customer")]
    if seen:
        offers = await store.get_features(["offer"], seen)
        lines = [f"- {sku}: {offers[sku]['offer']}" for sku in seen]
        text = "\n".join(["Looked at lately:", *lines])
        items.append(ContextItem(text, priority=40, truncate=True, section="interests"))
    if said:
        items.append(ContextItem(f"Last wrote: {said}", priority=20, section="messages"))
    return items


@context(
    store,
    max_tokens=335,
    max_output=300,
    freshness_sla="6h",
    model="gpt-4o",
    version="7",
    allow_looser=["max_tokens", "freshness_sla"],
)
async def support(user_id: str, question: str) -> list[ContextItem]:
    """What the support assistant knows when it answers a customer."""
    brief: Context = await customer_brief(user_id)
    found = await search_help(question)
    return [
        ContextItem(
            "You answer customers of Kestrel, an outdoor shop. Be brief and friendly. Use only "
            "the pages below, and name the page.",
            required=True,
            section="instructions",
            role="system",
        ),
        ContextItem(brief.content, priority=90, source=brief, section="customer", role="system"),
        *(
            ContextItem(chunk.text, priority=60 - rank, source=chunk, section="help")
            for rank, chunk in enumerate(found)
        ),
        ContextItem.template(
            "Spent in the last day: {spend_sum_24h:.2f} EUR. Device: {device}.", priority=30
        ),
        ContextItem(question, required=True, section="question", role="user"),
    ]


@context(
    store, max_tokens=160, freshness_sla="15m", freshness_strict=True, model="claude-sonnet-4-5"
)
async def fraud_brief(user_id: str, order: str, amount: float) -> list[ContextItem]:
    """What the reviewer of a suspicious payment sees; refused if a value is too old."""
    paid: list[Payment] = await store.get_feature("payments_of_an_hour", user_id)
    lines = [
        f"- {each['at']:%H:%M:%S} {each['amount']:.2f} EUR, card from {each['card_country']}, "
        + ("accepted" if each["ok"] else "refused")
        for each in reversed(paid)
    ]
    return [
        ContextItem(f"Review order {order} over {amount:.2f} EUR.", required=True),
        ContextItem.template("Fraud score: {fraud_score}.", required=True),
        ContextItem("\n".join(["Payments of the last hour:", *lines]), priority=80, truncate=True),
        ContextItem.template("{profile}.", priority=60),
        ContextItem.template("Spent in the last day: {spend_sum_24h:.2f} EUR.", priority=40),
    ]


@context(store, max_tokens=120, model="gpt-4o-mini")
async def onboarding(user_id: str) -> list[ContextItem]:
    """The first message to somebody who has just signed up."""
    found = await search_first_steps("first order account delivery")
    return [
        ContextItem("Write a short welcome message.", required=True),
        ContextItem.template("The new customer is {name} from {country}.", priority=90),
        *(ContextItem(chunk.text, priority=50, source=chunk, truncate=True) for chunk in found),
    ]
