"""Features for the rows about windows: a family of twelve, and twelve plain ones beside it."""

from collections.abc import Callable

from headwater import FeatureStore, ServiceEvent, entity, feature

WINDOWS = ["1h", "7d", "30d"]
AGGREGATES = ["count", "sum", "avg", "max"]
WINDOW_NAMES = [f"spend_{aggregate}_{window}" for window in WINDOWS for aggregate in AGGREGATES]
PLAIN_NAMES = [f"plain_{number}" for number in range(len(WINDOW_NAMES))]

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase", window=WINDOWS, aggregate=AGGREGATES)
async def spend(user_id: str, event: ServiceEvent) -> float:
    return float(event.payload["amount"])


@feature(entity=User, trigger="plain_purchase")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id) or 0.0
    return before + float(event.payload["amount"])


def numbered(number: int) -> Callable[[str, ServiceEvent], float]:
    def handler(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"]) + number

    handler.__name__ = handler.__qualname__ = PLAIN_NAMES[number]
    return handler


for number in range(len(PLAIN_NAMES)):
    feature(entity=User, trigger="profile")(numbered(number))
