"""Types that mypy knows of declarations: `make types` checks them, and that misuse is an error.

Each ``type: ignore`` names an expected error; mypy reports one that is not needed.
"""

from dataclasses import dataclass
from typing import Any, assert_type

from headwater import (
    Chunk,
    Context,
    ContextItem,
    DeadLetter,
    Event,
    Feature,
    FeatureStore,
    ServiceEvent,
    VerificationReport,
    context,
    entity,
    event,
    feature,
    retriever,
)

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger=["buy"], ttl="5m")
async def total(user_id: str, event: ServiceEvent) -> float:
    return 1.0


@event(store, "buy")
class Buy:
    amount: float
    note: str = ""


@event(store, "sell")
@dataclass
class Sell:
    amount: int


@feature(entity=User, trigger=["buy", "sell"])
def balance(user_id: str, event: Event[Buy | Sell]) -> float:
    assert_type(event.payload.amount, float | int)
    if isinstance(event.payload, Buy):
        assert_type(event.payload.amount, float)
        assert_type(event.payload.note, str)
    assert_type(event.entity_id, str)
    assert_type(event.payload.price, Any)  # type: ignore[union-attr]
    return event.payload.amount


async def publish_instances() -> None:
    assert_type(await store.publish("buy", "ada", Buy(amount=5)), ServiceEvent)
    await store.publish("sell", "ada", Sell(5))
    await store.publish("sell", "ada", "much")  # type: ignore[call-overload]
    Buy(amount="much")  # type: ignore[arg-type]
    Buy(5.0)  # type: ignore[call-arg]


@feature(entity=User)
def name(user_id: str) -> str:
    return user_id


@store.entity
class Item:
    item_id: int


@store.feature(Item, trigger="sold")
def sold(item_id: int, event: ServiceEvent) -> int | None:
    return None


@store.context(max_tokens=5)
async def note(item_id: int) -> str:
    return ""


@store.retriever(top_k=3)
def items(query: str) -> list[str]:
    return []


@retriever(store, cache_ttl="5m")
async def search(query: str) -> list[str]:
    return [query]


@context(store, max_tokens=100)
def support(user_id: str, question: str = "") -> list[ContextItem]:
    return [ContextItem(question)]


async def use() -> None:
    assert_type(await search("q"), list[Chunk])
    assert_type(await support("u1", question="q"), Context)
    assert_type(await support.options(max_tokens=5)("u1"), Context)
    assert_type(await total("u1", ServiceEvent("buy", "u1")), float)
    assert_type(name("u1"), str)
    assert_type(User().user_id, str)
    assert_type(await total.get("u1"), float | None)
    assert_type(await total.get_many([7]), dict[int, float | None])
    assert_type(await sold.get(7), int | None)
    assert_type(sold(7, ServiceEvent("sold", "7")), int | None)
    assert_type(Item().item_id, int)
    assert_type(await note(7), Context)
    assert_type(await items("q"), list[Chunk])
    handle: Feature[float] = total
    await handle.set("u1", 5.0)
    await store.get_features([handle, "name"], ["u1"])


def use_blocking() -> None:
    assert_type(store.sync.get_features(["total"], [7]), dict[int, dict[str, Any]])
    assert_type(store.sync.records.verify("0123abcd", signed=True), VerificationReport)
    assert_type(store.sync.dead_letters.list(limit=5), list[DeadLetter])
    assert_type(store.sync.run(support("u1")), Context)


async def misuse() -> None:
    store.sync.publish(7)  # type: ignore[call-overload]
    store.sync.records.verify("0123abcd", sign=True)  # type: ignore[call-arg]
    await total("u1")  # type: ignore[call-arg]
    await total.set("u1", "five")  # type: ignore[arg-type]
    name(1)  # type: ignore[arg-type]
    store.feature(Item, triger="sold")  # type: ignore[arg-type]
    feature(entity=User, triger="buy")  # type: ignore[arg-type]
    await support()  # type: ignore[call-arg]
    context(store, max_token=5)  # type: ignore[arg-type]
