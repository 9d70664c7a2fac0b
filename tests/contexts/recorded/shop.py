"""A shop's support desk: features, a search and contexts that use them."""

from __future__ import annotations

from typing import Any, Protocol

from headwater import (
    Chunk,
    Context,
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.declarations.contexts import ContextFunction


class Shop:
    """A store and its declarations."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self.documents = [
            Chunk(text="Parcels arrive within three days.", id="d1", score=0.9),
            Chunk(text="Returns are free of charge.", id="d2", score=0.5),
        ]
        self.runs = 0
        self.user: type
        self.support: ContextFunction[Any]
        self.plain: ContextFunction[Any]
        self.outer: ContextFunction[Any]

    async def spends(self, user_id: str, amount: int, name: str = "Ann") -> None:
        await self.store.set_feature("total", user_id, amount)
        await self.store.set_feature("name", user_id, name)

    async def asks(self, user_id: str = "u1", question: str = "Where is it?") -> Context:
        made: Context = await self.support(user_id, question)
        return made


class Opens(Protocol):
    """Open the shop with some settings changed."""

    def __call__(self, **changes: object) -> Shop: ...


def declare(store: FeatureStore) -> Shop:
    """Return the shop in a new store."""
    shop = Shop(store)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=User, trigger="named")
    async def name(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["name"])

    @retriever(store)
    async def search(question: str) -> list[Chunk]:
        return shop.documents

    @context(store, max_tokens=60, freshness_sla="1h", model="gpt-4o", version="2")
    async def support(user_id: str, question: str = "?") -> list[ContextItem]:
        shop.runs += 1
        spent = await store.get_feature("total", user_id)
        return [
            ContextItem("You are a support agent.", priority=100, required=True),
            ContextItem.template("The customer is {name}.", priority=90),
            ContextItem(f"Spent so far: {spent}", priority=80, section="facts"),
            *(ContextItem(c.text, priority=50, source=c) for c in await search(question)),
            ContextItem(f"Asked: {question}", priority=40),
            ContextItem("The shop sells boots. " * 20, priority=1, truncate=True),
        ]

    @context(store)
    def plain(text: str) -> str:
        return text

    @context(store)
    async def outer(user_id: str) -> list[ContextItem]:
        inner = await support(user_id)
        return [ContextItem(inner.content, source=inner)]

    shop.user = User
    shop.support, shop.plain, shop.outer = support, plain, outer
    return shop
