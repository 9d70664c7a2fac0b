"""Our features file: totals, one or two for each event, and ten features of one entity."""

from collections.abc import Callable

from headwater import FeatureStore, ServiceEvent, entity, feature

NAMES = [f"f{n}" for n in range(10)]

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id) or 0.0
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="two_async")
async def first_total(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("first_total", user_id) or 0.0
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="two_async")
async def second_total(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("second_total", user_id) or 0.0
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="async_and_sync")
async def async_total(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("async_total", user_id) or 0.0
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="async_and_sync")
def sync_total(user_id: str, event: ServiceEvent) -> float:
    before: float = store.sync.get_feature("sync_total", user_id) or 0.0
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="ping")
async def sent_at(user_id: str, event: ServiceEvent) -> float:
    return float(event.payload["sent"])


def numbered(number: int) -> Callable[[str, ServiceEvent], float]:
    def handler(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["base"]) + number

    handler.__name__ = handler.__qualname__ = NAMES[number]
    return handler


for number in range(len(NAMES)):
    feature(entity=User, trigger="profile")(numbered(number))
