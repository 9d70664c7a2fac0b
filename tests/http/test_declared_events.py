"""Declared events in the listing, the graph, the OpenAPI document, MCP and the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import Enum
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from headwater import Event, FeatureStore, ServiceEvent, create_app, entity, event, feature
from headwater.model.callers import Caller, CallerLimits
from headwater.settings.schema import Settings
from headwater.store.cards import card_of
from headwater.store.listings import declarations_of


class Channel(Enum):
    WEB = "web"
    SHOP = "shop"


class Line(msgspec.Struct):
    item: str
    price: Annotated[float, msgspec.Meta(ge=0)] = 0.0


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    store = FeatureStore(settings=Settings().replace(api_key="k", home=str(tmp_path / "home")))

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Shop:
        shop_id: str

    @event(store, "purchase")
    class Purchase:
        """Something was bought."""

        amount: Annotated[float, msgspec.Meta(description="The price, in EUR.")]
        channel: Channel = Channel.WEB
        lines: tuple[Line, ...] = ()

    @event(store, "order placed/{now}")
    class Placed:
        number: int

    @event(store, "moved")
    class Moved:
        city: str

    @feature(entity=User, trigger="purchase")
    def last_amount(user_id: str, event: Event[Purchase]) -> float:
        return event.payload.amount

    @feature(entity=User, trigger=["moved", "visit"])
    def last_event(user_id: str, event: ServiceEvent) -> str:
        return event.event_type

    @feature(entity=Shop, trigger="moved")
    def city(shop_id: str, event: Event[Moved]) -> str:
        return event.payload.city

    return store


@pytest.fixture
async def http(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        store,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app=create_app(store)),
            base_url="http://localhost",
            headers={"x-api-key": "k"},
        ) as client,
    ):
        yield client


LIMITED = Caller(
    "shop", frozenset({"read", "ingest"}), limits=CallerLimits(entities=frozenset({"User"}))
)


async def test_the_listing_has_a_json_schema_for_each_declared_type(
    http: httpx.AsyncClient,
) -> None:
    listed = (await http.get("/api/store")).json()["events"]
    schemas = {each["name"]: each["schema"] for each in listed}
    assert schemas.keys() == {"purchase", "order placed/{now}", "moved", "visit"}
    assert schemas["visit"] is None
    purchase = schemas["purchase"]
    Draft202012Validator.check_schema(purchase)
    fits = Draft202012Validator(purchase).is_valid
    assert fits({"amount": 5, "channel": "shop", "lines": [{"item": "pen"}], "more": 1})
    assert not fits({"amount": "much"})
    assert not fits({"amount": 5, "lines": [{"item": "pen", "price": -1}]})
    assert purchase["required"] == ["amount"]
    assert purchase["description"] == "Something was bought."
    assert purchase["properties"]["amount"]["description"] == "The price, in EUR."
    assert purchase["properties"]["channel"]["default"] == "web"


async def test_the_graph_has_declared_events_and_the_card_has_the_schema(
    http: httpx.AsyncClient,
) -> None:
    graph = (await http.get("/api/store")).json()["graph"]
    nodes = {node["id"] for node in graph["nodes"] if node["kind"] == "event"}
    assert nodes == {"event:purchase", "event:order placed/{now}", "event:moved", "event:visit"}
    card = (await http.get("/v1/declarations/event/purchase")).json()
    assert card["event"]["schema"]["required"] == ["amount"]
    assert "test_declared_events.py" in card["declared_at"]
    assert [each["node"]["name"] for each in card["consumers"]] == ["last_amount"]
    free = (await http.get("/v1/declarations/event/visit")).json()
    assert free["event"] == {"name": "visit", "description": "", "schema": None}


async def test_the_openapi_document_is_valid_and_has_a_path_for_each_declared_type(
    http: httpx.AsyncClient,
) -> None:
    document = (await http.get("/openapi.json")).json()
    OPENAPI_31_VALIDATOR.validate(document)
    purchase = document["paths"]["/ingest/purchase"]["post"]
    assert purchase["summary"] == "Publish an event of the type purchase."
    assert all(each["in"] != "path" for each in purchase["parameters"])
    body = purchase["requestBody"]["content"]["application/json"]["schema"]
    schema = {**body, "components": document["components"]}
    fits = Draft202012Validator(schema).is_valid
    lines = [{"item": "pen"}]
    assert fits({"entity_id": "ada", "payload": {"amount": 5, "lines": lines}})
    assert not fits({"entity_id": "ada", "payload": {"amount": 5, "lines": [{}]}})
    assert not fits({"entity_id": "ada", "payload": {}})
    assert not fits({"entity_id": "ada"})
    assert not fits({"entity_id": "ada", "payload": {"amount": 5}, "unknown": 1})
    path = "/ingest/order%20placed%2F%7Bnow%7D"
    assert path in document["paths"]
    answer = await http.post(path, json={"entity_id": "ada", "payload": {"number": 7}})
    assert answer.status_code == 202
    assert answer.json()["event_type"] == "order placed/{now}"
    identifiers = [
        each["operationId"] for item in document["paths"].values() for each in item.values()
    ]
    assert len(identifiers) == len(set(identifiers))


def test_a_limited_key_does_not_learn_schemas_that_it_may_not_publish(store: FeatureStore) -> None:
    listed = {each.name: each.schema for each in declarations_of(store, LIMITED).events}
    assert listed.keys() == {"purchase", "moved", "visit"}
    assert listed["purchase"] is not None
    assert listed["moved"] is None
    moved = card_of(store, "event", "moved", LIMITED)
    assert moved.event is not None
    assert moved.event.schema is None
    reader = Caller("reader", frozenset({"assemble"}))
    assert declarations_of(store, reader).events == []
