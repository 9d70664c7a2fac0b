"""The features of the shop, and contexts that show everything that an X-ray has to show."""

from __future__ import annotations

from headwater import ContextItem, context, feature
from tests.ui.features import User, name, search_help, store


@feature(
    entity=User,
    refresh="1h",
    materialize=True,
    default=0,
    freshness_sla="1ms",
    sql="SELECT 'ada' AS user_id, 7 AS value",
)
def open_orders(user_id: str) -> int: ...


@feature(entity=User, template="{name}: {total_spend} spent, {open_orders} open orders")
def profile(user_id: str) -> str: ...


@context(store, max_tokens=90, freshness_sla="5m", model="gpt-4o", version="2")
async def advice(user_id: str, question: str) -> list[ContextItem]:
    return [
        ContextItem("You answer for a small shop. Be brief.", required=True),
        ContextItem.template("Who asks: {profile}.", priority=80),
        *(
            ContextItem(chunk.text, priority=50 - rank, source=chunk)
            for rank, chunk in enumerate(await search_help(question))
        ),
        ContextItem(f"Question: {question}", required=True, section="question"),
        ContextItem("A long closing remark that may be cut at any word. " * 6, truncate=True),
    ]


@context(store, freshness_sla="5m", freshness_strict=True)
async def urgent(user_id: str) -> list[ContextItem]:
    return [ContextItem.template("{open_orders} orders are open.")]


@context(store)
async def greeting(user_id: str) -> str:
    return f"Hello {await name.get(user_id)}"


@context(store, model="gpt-4o")
async def outer(user_id: str) -> list[ContextItem]:
    inner = await greeting(user_id)
    return [
        ContextItem(str(inner), source=inner),
        ContextItem("from elsewhere", source={"page": 7}),
        ContextItem("a fixed text"),
    ]


@context(store, max_tokens=6_000, model="gpt-4o")
async def crowd(user_id: str, count: int) -> list[ContextItem]:
    return [
        ContextItem.template(f"Item {number} for {{name}}.", priority=number % 100)
        for number in range(count)
    ]


@context(store)
async def echo(user_id: str, text: str) -> list[ContextItem]:
    return [
        ContextItem.template("Name: {name}"),
        ContextItem(text, section=text[:60]),
        ContextItem(text, source={text: text}),
    ]
