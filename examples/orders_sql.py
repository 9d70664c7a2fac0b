"""Features from SQL over a file and features from events, read in one call.

A worker computes `order_count` and `favourite` on a schedule, each with one query over the orders
file for all users. `clicks` is triggered by events. Readers do not see the difference.

    python examples/orders_sql.py             run it in a temporary folder
    headwater serve examples/orders_sql.py    serve it; the queries run every five minutes
"""

import asyncio
from datetime import timedelta
from pathlib import Path

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.testing import temporary

store = FeatureStore()
store.source("orders", Path(__file__).parent / "data" / "orders.csv")


@entity(store)
class User:
    user_id: str


@feature(
    entity=User,
    refresh=timedelta(minutes=5),
    materialize=True,
    default=0,
    sql="SELECT user_id, count(*) AS value FROM orders GROUP BY user_id",
)
def order_count(user_id: str) -> int: ...


@feature(
    entity=User,
    refresh="1h",
    materialize=True,
    sql="""
        SELECT user_id, arg_max(product, amount) AS value,
               max(ordered_at) AT TIME ZONE 'UTC' AS timestamp
        FROM orders GROUP BY user_id
    """,
)
def favourite(user_id: str) -> str: ...


@feature(entity=User, trigger="click", default=0)
async def clicks(user_id: str, event: ServiceEvent) -> int:
    before: int = await store.get_feature("clicks", user_id)
    return before + 1


async def main() -> None:
    async with temporary(store):
        await store.publish("click", "ada")
        await store.publish("click", "ada")
        await store.drain()
        (row,) = await store.get_feature_values(["order_count", "favourite", "clicks"], ["ada"])
        for name, value in row.items():
            print(f"{name}: {value.value} (as of {value.as_of:%Y-%m-%d}, {value.source})")


if __name__ == "__main__":
    asyncio.run(main())
