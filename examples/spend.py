"""Features of a shop's users, kept fresh by events.

`total_spend` is triggered: it runs once for each purchase or refund, in order. `tier` is
on demand: it runs when it is read. `blurb` is a template, which reads the features that it names.

    python examples/spend.py             run it in a temporary folder
    headwater serve examples/spend.py    serve it, then publish events over HTTP
"""

import asyncio

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.testing import temporary

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger=["purchase", "refund"], default=0.0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    """Total of purchases minus refunds."""
    before: float = await store.get_feature("total_spend", user_id)
    sign = -1 if event.event_type == "refund" else 1
    return before + sign * float(event.payload["amount"])


@feature(entity=User)
async def tier(user_id: str) -> str:
    """Gold if the total is 100 or more."""
    spent = await store.get_feature("total_spend", user_id)
    return "gold" if spent >= 100 else "silver"


@feature(entity=User, template="{tier} customer who spent {total_spend}")
def blurb(user_id: str) -> str: ...


async def main() -> None:
    async with temporary(store):
        print("before:", await store.get_feature("blurb", "ada"))
        await store.publish("purchase", "ada", {"amount": 80})
        await store.publish("purchase", "ada", {"amount": 40})
        await store.drain()
        print("after two purchases:", await store.get_feature("blurb", "ada"))
        await store.publish("refund", "ada", {"amount": 40})
        await store.drain()
        print("after a refund:", await store.get_feature("blurb", "ada"))


if __name__ == "__main__":
    asyncio.run(main())
