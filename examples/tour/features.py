"""The features of a small shop, which `headwater demo` serves."""

from datetime import timedelta
from pathlib import Path

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature

store = FeatureStore()
store.source("orders", Path(__file__).with_name("orders.csv"))


@entity(store)
class User:
    user_id: str


@entity(store)
class Country:
    country: str


@entity(store)
class Article:
    article_id: str


@feature(entity=User, trigger=["purchase", "refund"], default=0.0, freshness="caught_up")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before = await total_spend.get(user_id) or 0.0
    amount = float(event.payload["amount"])
    return before - amount if event.event_type == "refund" else before + amount


@feature(entity=User)
async def tier(user_id: str) -> str:
    spent = await total_spend.get(user_id) or 0.0
    return "gold" if spent >= 100 else "silver"


past_orders = store.sql_feature(
    "past_orders",
    int,
    entity=User,
    refresh=timedelta(minutes=5),
    materialize=True,
    default=0,
    freshness="caught_up",
    freshness_sla="15m",
    sql="SELECT user_id, count(*) AS value FROM orders GROUP BY user_id",
)

blurb = store.template_feature(
    "blurb",
    entity=User,
    template="{tier} customer: {total_spend} spent, {past_orders} past orders",
)


@feature(entity=Country, trigger="rate_set")
def shipping_rate(country: str, event: ServiceEvent) -> float:
    return float(event.payload["per_kg"])


@feature(entity=User, trigger="checkout", max_retries=1)
async def shipping_fee(user_id: str, event: ServiceEvent) -> float:
    country = event.payload["country"]
    rate = await store.get_feature("shipping_rate", country)
    if rate is None:
        raise LookupError(f"no shipping rate for {country}")
    return float(rate * event.payload["kg"])


@feature(entity=Article, trigger="article_saved")
async def index_article(article_id: str, event: ServiceEvent) -> None:
    await store.index("help", article_id, event.payload["text"])


search_help = store.index_retriever("search_help", index="help", top_k=3, cache_ttl="5m")


@context(store, max_tokens=80, freshness_sla="5m", model="gpt-4o")
async def support(user_id: str, question: str) -> list[ContextItem]:
    rules = "You are the support agent of a small shop. Be brief."
    return [
        ContextItem(rules, required=True, role="system"),
        ContextItem.template("Customer: {blurb}.", priority=80, role="system"),
        *(
            ContextItem(chunk.text, priority=50 - rank, source=chunk)
            for rank, chunk in enumerate(await search_help(question))
        ),
        ContextItem(question, required=True, role="user"),
    ]
