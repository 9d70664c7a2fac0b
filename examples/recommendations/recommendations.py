"""Recommendations: queries over a table on a schedule, and what a customer looks at right now.

headwater serve                    run the queries when they are due, and answer over HTTP
python recommendations.py ada      print what to show to a customer
"""

import asyncio
import sys
from pathlib import Path

from headwater import Event, FeatureStore, entity, event, feature

MOST = 3
HERE = Path(__file__).parent

store = FeatureStore()
store.source("orders", HERE / "orders.csv")


@entity(store)
class Customer:
    customer_id: str


@entity(store)
class Product:
    product: str


@entity(store)
class Shop:
    shop: str


@event(store, "viewed")
class Viewed:
    product: str


bought = store.sql_feature(
    "bought",
    list[str],
    entity=Customer,
    refresh="1h",
    materialize=True,
    default=[],
    freshness="caught_up",
    description="What a customer has, which is not recommended again.",
    sql="""
        SELECT customer_id, array_agg(product ORDER BY ordered_at DESC) AS value
        FROM orders GROUP BY customer_id
    """,
)

bought_with = store.sql_feature(
    "bought_with",
    list[str],
    entity=Product,
    refresh="cron: 30 3 * * * Europe/Berlin",
    materialize=True,
    default=[],
    freshness="caught_up",
    description="What customers of a product bought as well, most often first.",
    sql="""
        WITH pairs AS (
            SELECT one.product, other.product AS also, count(DISTINCT one.customer_id) AS customers
            FROM orders AS one
            JOIN orders AS other
              ON one.customer_id = other.customer_id AND one.product <> other.product
            GROUP BY one.product, other.product
        )
        SELECT product, array_agg(also ORDER BY customers DESC, also) AS value
        FROM pairs GROUP BY product
    """,
)

bestsellers = store.sql_feature(
    "bestsellers",
    list[str],
    entity=Shop,
    refresh="cron: 0 4 * * * Europe/Berlin",
    materialize=True,
    default=[],
    freshness="caught_up",
    description="What the shop sells most, for customers of whom nothing is known.",
    sql="""
        WITH sold AS (SELECT product, count(*) AS orders FROM orders GROUP BY product)
        SELECT 'shop' AS shop, array_agg(product ORDER BY orders DESC, product) AS value FROM sold
    """,
)


@feature(entity=Customer, trigger="viewed", window="1h", aggregate="last(3)", default=[])
def views(customer_id: str, event: Event[Viewed]) -> str:
    """What a customer looked at within an hour."""
    return event.payload.product


@feature(entity=Customer, derived=True)
async def recommended(customer_id: str) -> list[str]:
    """What goes with the things that a customer looks at or has; else what sells most."""
    has = await bought.get(customer_id) or []
    seen = [*reversed(await views["last(3)", "1h"].get(customer_id) or []), *has]
    near = [each for product in seen for each in await bought_with.get(product) or []]
    candidates = dict.fromkeys([*near, *(await bestsellers.get("shop") or [])])
    return [each for each in candidates if each not in has][:MOST]


async def main(customer_id: str) -> None:
    async with store:
        await store.drain()  # a worker does this: events that wait, and queries that are due
        print(*await recommended.get(customer_id) or [], sep=", ")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
