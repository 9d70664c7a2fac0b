"""Families of windows for the tests of the web UI; loaded by the server's process."""

from dataclasses import dataclass

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@dataclass
class Purchase:
    category: str
    amount: float


@feature(
    entity=User,
    trigger="purchase",
    window=["1h", "7d"],
    aggregate=["count", "sum", "p95", "last(2)"],
    freshness="caught_up",
)
def spend(user_id: str, event: ServiceEvent) -> float:
    """What a customer spends."""
    return float(event.payload["amount"])


@feature(
    entity=User,
    trigger="purchase",
    window="7d",
    aggregate="sum",
    value="amount",
    by="category",
    max_keys=8,
)
def bought(user_id: str, event: ServiceEvent) -> Purchase:
    return Purchase(str(event.payload["category"]), float(event.payload["amount"]))


@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("visits", user_id)
    return before + 1


@context(store)
async def brief(user_id: str) -> list[ContextItem]:
    return [ContextItem.template("Spent {spend_sum_7d}, mostly {spend_p95_7d}.", required=True)]
