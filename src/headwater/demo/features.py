"""A small shop, as `headwater demo` runs it. Copy it, change it, serve it."""

from datetime import timedelta
from pathlib import Path

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()
store.source("orders", Path(__file__).with_name("orders.csv"))


@entity(store)
class User:
    user_id: str


@entity(store)
class Country:
    country: str


@feature(entity=User, trigger=["purchase", "refund"], default=0.0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id)
    amount = float(event.payload["amount"])
    return before - amount if event.event_type == "refund" else before + amount


@feature(entity=User)
async def tier(user_id: str) -> str:
    spent = await store.get_feature("total_spend", user_id)
    return "gold" if spent >= 100 else "silver"


@feature(
    entity=User,
    refresh=timedelta(minutes=5),
    materialize=True,
    default=0,
    sql="SELECT user_id, count(*) AS value FROM orders GROUP BY user_id",
)
def past_orders(user_id: str) -> int: ...


@feature(entity=User, template="{tier} customer: {total_spend} spent, {past_orders} past orders")
def blurb(user_id: str) -> str: ...


@feature(entity=Country, trigger="rate_set")
def parcel_rate(country: str, event: ServiceEvent) -> float:
    return float(event.payload["per_kg"])


@feature(entity=User, trigger="checkout", max_retries=1)
async def parcel_fee(user_id: str, event: ServiceEvent) -> float:
    country = event.payload["country"]
    rate = await store.get_feature("parcel_rate", country)
    if rate is None:
        raise LookupError(f"no parcel rate for {country}")
    return float(rate * event.payload["kg"])
