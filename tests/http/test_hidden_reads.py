"""What keys with limits learn of reads that they may not make themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature, retriever
from headwater.model.callers import Caller, CallerLimits
from headwater.settings.schema import Settings
from tests.http.conftest import KEY, client_of
from tests.http.test_limited_keys import is_refused, with_key
from tests.mcp.conftest import as_caller, problem

BEHIND: dict[str, Callable[[FeatureStore, str], Awaitable[object]]] = {
    "searched": lambda store, _: store.search("letters", "parcel", mode="text"),
    "assembled": lambda store, of: store.assemble("greeting", {"user_id": of}),
    "past": lambda store, of: store.get_feature_history("spend", of),
    "document": lambda store, of: store.indexes.get_document("letters", of),
    "listed": lambda store, of: store.indexes.list_documents("letters", prefix=of),
    "kept": lambda store, of: store.get_feature("kept", of),
    "events": lambda store, of: store.bus.list(entity_id=of),
}


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)
    Index(store, "letters", embedder="lexical")

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Order:
        order_id: str

    @feature(entity=User, trigger="purchase", default=0.0)
    async def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @feature(entity=Order, trigger="shipped", default="waiting")
    async def state(order_id: str, event: ServiceEvent) -> str:
        return "shipped"

    @feature(entity=User, ttl="1h")
    async def kept(user_id: str) -> str:
        return str(await store.get_feature_history("spend", user_id))

    @feature(entity=User)
    async def parcel(user_id: str) -> str:
        return str(await store.get_feature("state", "acme-7"))

    for how in BEHIND:
        for of in ("acme-1", "bell-1"):
            declare_behind(store, User, how, of)
    declare_contexts(store)
    return store


def declare_behind(store: FeatureStore, user: type, how: str, of: str) -> None:
    @feature(entity=user, name=f"{how}_{of[:4]}")
    async def behind(user_id: str) -> str:
        return str(await BEHIND[how](store, of))


def declare_contexts(store: FeatureStore) -> None:
    @context(store)
    async def greeting(user_id: str) -> str:
        return f"You have spent {await store.get_feature('spend', user_id)}."

    @context(store)
    async def mention(user_id: str, about: str) -> str:
        return str(await greeting(about))

    @context(store)
    async def summary(user_id: str, name: str) -> str:
        return str(await store.get_feature(name, user_id))

    @retriever(store)
    async def asked(user_id: str, name: str) -> list[str]:
        return [str(await store.get_feature(name, user_id))]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FeatureStore]:
    settings = Settings().replace(
        api_key=KEY, keys_file=str(tmp_path / "keys.toml"), home=str(tmp_path / "home")
    )
    async with shop(settings) as store:
        await store.index("letters", "bell-1", "The parcel of Bell arrives.")
        yield store


async def status(client: httpx.AsyncClient, context_id: str) -> int:
    """Return the status of the page of a record."""
    return (await client.get(f"/v1/context/{context_id}")).status_code


@pytest.mark.parametrize("pointer", ["/inputs/user_id", "/features/0/entity_id"])
async def test_redacting_an_id_reveals_no_record(pointer: str, store: FeatureStore) -> None:
    if pointer.startswith("/inputs"):
        made = await store.assemble("mention", {"user_id": "bell-1", "about": "acme-1"})
        redacted = outer = made.context_id
    else:
        made = await store.assemble("mention", {"user_id": "acme-1", "about": "bell-1"})
        outer, redacted = made.context_id, made.lineage.contexts[0].context_id
    async with with_key(store, "records", tenant="acme-") as client:
        assert await status(client, outer) == 404
        await store.records.redact(redacted, pointer, reason="asked for")
        assert [await status(client, each) for each in (outer, redacted)] == [404, 404]
        listed = (await client.get("/v1/contexts")).json()["contexts"]
        assert not {outer, redacted} & {each["context_id"] for each in listed}


@pytest.mark.parametrize("how", BEHIND)
async def test_a_record_of_another_key_does_not_show_what_its_features_had_read(
    how: str, store: FeatureStore
) -> None:
    own, foreign, again = [
        (await store.assemble("summary", {"user_id": "acme-1", "name": f"{how}_{of}"})).context_id
        for of in ("acme", "bell", "bell")
    ]
    async with with_key(store, "records", tenant="acme-") as client:
        # Neither an index nor the log of events says whose a text is.
        shown = 200 if how in ("assembled", "past", "kept") else 404
        assert [await status(client, each) for each in (own, foreign, again)] == [shown, 404, 404]
        listed = (await client.get("/v1/contexts?limit=1000")).json()["contexts"]
        assert not {foreign, again} & {each["context_id"] for each in listed}
    async with client_of(store) as admin:
        assert await status(admin, foreign) == 200


@pytest.mark.parametrize(
    ("limits", "name", "rule", "unknown"),
    [
        ({"tenant": "acme-"}, "past_bell", "begin with 'acme-'", "bell-1"),
        ({"entities": frozenset({"User"})}, "parcel", "not among User", "Order"),
        ({"tenant": "acme-"}, "searched_acme", "the key does not name it", "letters"),
        ({"indexes": frozenset({"other"})}, "searched_acme", "not among other", "letters"),
    ],
)
async def test_a_refusal_names_the_limit_and_nothing_that_the_caller_did_not_send(
    limits: dict[str, Any], name: str, rule: str, unknown: str, store: FeatureStore
) -> None:
    params = {"user_id": "acme-1", "name": name}
    async with with_key(store, **limits) as client:
        for path in ("/v1/contexts/summary", "/v1/retrievers/asked"):
            refused = await client.post(path, json={"params": params})
            assert is_refused(refused, rule), refused.text
            assert unknown not in refused.text
    caller = Caller("limited", limits=CallerLimits(**limits))
    async with as_caller(store, caller) as model:
        text = await problem(model, "context_summary", **params)
        assert rule in text
        assert unknown not in text
