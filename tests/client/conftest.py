"""A shop with an index and a context, served in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater import ContextItem, FeatureStore, Index, ServiceEvent, create_app, entity, feature
from headwater.client import AsyncClient
from headwater.settings.groups import EvalSettings
from headwater.settings.schema import Settings
from tests.http.conftest import patient_probes as patient_probes

KEY = "the key of the tests of the client"
URL = "http://localhost"

MakeClient = Callable[..., AsyncClient]


@dataclass
class Address:
    """A value with fields."""

    city: str


def shop(settings: Settings) -> FeatureStore:
    """Return a store with features, an index and contexts."""
    store = FeatureStore(settings=settings)
    docs = Index(store, "docs", embedder="lexical")

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase", max_retries=0)
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        before: float = await store.get_feature("total_spend", user_id) or 0.0
        return before + float(event.payload["amount"])

    @feature(entity=User, trigger="moved")
    def address(user_id: str, event: ServiceEvent) -> Address:
        return Address(event.payload["city"])

    @store.context(max_tokens=200, allow_looser="max_tokens")
    async def support(user_id: str, question: str = "") -> list[ContextItem]:
        chunks = await store.search(docs, question, top_k=1) if question else []
        spent = await store.get_feature("total_spend", user_id)
        return [
            ContextItem(f"spent {spent}", required=True),
            *(ContextItem(c.text) for c in chunks),
        ]

    @store.context(freshness_sla="1ms", freshness_strict=True)
    async def strict(user_id: str) -> list[ContextItem]:
        return [ContextItem(str(await store.get_feature("total_spend", user_id)))]

    return store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FeatureStore]:
    folder = EvalSettings(folder=str(tmp_path / "evals"))
    settings = Settings(eval=folder).replace(api_key=KEY, home=str(tmp_path / "home"))
    async with shop(settings) as store:
        yield store


@pytest.fixture
async def connect(store: FeatureStore) -> AsyncIterator[MakeClient]:
    """Return a function that makes clients of the store's server; all are closed at the end."""
    clients: list[AsyncClient] = []
    transport = httpx.ASGITransport(create_app(store))

    def connect(**options: Any) -> AsyncClient:
        given = {"url": URL, "key": KEY, "settings": Settings(), "transport": transport, **options}
        clients.append(AsyncClient(**given))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
def client(connect: MakeClient) -> AsyncClient:
    return connect()
