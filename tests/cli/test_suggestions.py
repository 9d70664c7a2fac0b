"""What a server suggests to try: names and payloads of the file that it serves."""

import shlex
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.cli.suggestions import payload_of, suggestions
from headwater.declarations.runtime import runtime_of
from headwater.testing import temporary

FILE = Path("my shop.py")
URL = "http://127.0.0.1:8000"


@pytest.fixture
def store() -> FeatureStore:
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="moved")
    def address(user_id: str, event: ServiceEvent) -> str:
        return f"{event.payload['street']} {event.payload['city']}, {event.payload.get('floor')}"

    @feature(entity=User, trigger="purchase", default=0)
    def points(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=User, trigger="visit", default=0)
    def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    return store


def test_an_event_is_suggested_with_what_its_handler_looks_up(store: FeatureStore) -> None:
    said = list(suggestions(store, FILE, URL))
    assert said[0].endswith(
        """/ingest/moved -d '{"entity_id":"1","payload":{"street":"some street","""
        """"city":"some city"}}'"""
    )
    assert said[1] == f"curl '{URL}/v1/features/address?entity_id=1'"
    assert said[2:] == [
        "headwater features get address 1 --file 'my shop.py'",
        "headwater graph 'my shop.py'",
    ]
    features = runtime_of(store).registry.features
    assert payload_of(features["points"]) == {"amount": 1}
    assert payload_of(features["visits"]) == {}


async def test_an_event_is_suggested_with_what_all_its_handlers_look_up() -> None:
    store = FeatureStore()

    @entity(store)
    class Device:
        device_id: str

    @feature(entity=Device, trigger="reading")
    def last_unit(device_id: str, event: ServiceEvent) -> str:
        return f"{event.payload['temp']} {event.payload['unit']}"

    @feature(entity=Device, trigger=["started", "reading"])
    def warmth(device_id: str, event: ServiceEvent) -> float:
        return float(event.payload["temp"] + event.payload["offset"])

    @feature(entity=Device, trigger="started")
    def boots(device_id: str, event: ServiceEvent) -> int:
        return int(event.payload["boot"])

    suggested = shlex.split(next(suggestions(store, FILE, URL)))
    payload = msgspec.json.decode(suggested[-1])["payload"]
    assert payload == {"temp": 1, "unit": "some unit", "offset": 1}
    async with temporary(store):
        await store.publish("reading", "1", payload)
        await store.drain()
        assert await store.dead_letters.list() == []


def test_a_handler_without_source_is_sent_an_empty_payload(store: FeatureStore) -> None:
    declared = runtime_of(store).registry.features["points"]
    unread: dict[str, Any] = {}
    exec("def points(user_id, event): return event.payload['amount']", unread)
    assert payload_of(replace(declared, function=unread["points"])) == {}
    assert payload_of(replace(declared, function=partial(declared.function))) == {}


def test_a_context_is_suggested_with_arguments_of_its_types(store: FeatureStore) -> None:
    @context(store)
    def planned(days: list[date]) -> list[ContextItem]:
        return [ContextItem(str(days))]

    assert not any("contexts" in line for line in suggestions(store, FILE, URL))

    @context(store)
    def support(
        user_id: str, last_order: str, top: int, share: float, *rest: int, brief: bool, x: int = 1
    ) -> list[ContextItem]:
        return [ContextItem(user_id)]

    said = list(suggestions(store, FILE, URL))
    assert said[3].endswith(
        """/v1/contexts/support -d '{"params":{"user_id":"1","last_order":"some last order","""
        """"top":1,"share":1.5,"brief":true}}'"""
    )
    assert said[4:6] == [
        "headwater context list --file 'my shop.py'",
        "headwater context verify ID --file 'my shop.py'",
    ]


async def test_a_suggested_event_can_be_handled(store: FeatureStore) -> None:
    async with temporary(store):
        for name, event_type in (("address", "moved"), ("points", "purchase"), ("visits", "visit")):
            payload = payload_of(runtime_of(store).registry.features[name])
            await store.publish(event_type, "1", payload)
            await store.drain()
            assert await store.get_feature(name, "1")
