"""The features of the rows named history with derived columns."""

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase", default=0.0)
def total_spend(user_id: str, event: ServiceEvent) -> float:
    return float(event.payload["total"])


@feature(entity=User, trigger="purchase", default=0)
def orders(user_id: str, event: ServiceEvent) -> int:
    return int(event.payload["orders"])


@feature(entity=User, trigger="move")
def country(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["country"])


def _declare(name: str) -> None:
    @feature(entity=User, trigger="rated", name=name)
    def score(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["score"])


SCORES = tuple(f"score_{number}" for number in range(7))
for _name in SCORES:
    _declare(_name)


@feature(entity=User, derived=True)
async def tier(user_id: str) -> str:
    """What one read decides."""
    spent = await store.get_feature(total_spend, user_id) or 0.0
    return "gold" if spent >= 500 else "silver"


@feature(entity=User, derived=True)
async def average_order(user_id: str) -> float | None:
    """What several reads decide."""
    values = (await store.get_features([total_spend, orders], [user_id]))[user_id]
    return values["total_spend"] / values["orders"] if values["orders"] else None


STORED = ("total_spend", "orders", "country", *SCORES)
DERIVED = ("tier", "average_order")
