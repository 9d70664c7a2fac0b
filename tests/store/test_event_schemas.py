"""Event schemas: payloads are checked when they are published, and typed in handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import httpx
import msgspec
import pytest

from headwater import Event, FeatureStore, ServiceEvent, create_app, entity, event, feature
from headwater.client import AsyncClient
from headwater.client.publisher import FailedEvent
from headwater.declarations.runtime import runtime_of
from headwater.errors import EventError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

KEY = "the key of the tests of event schemas"


class Channel(Enum):
    WEB = "web"
    SHOP = "shop"


class Line(msgspec.Struct):
    item: str
    price: Annotated[float, msgspec.Meta(ge=0)]


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    store = FeatureStore(settings=settings.replace(api_key=KEY), clock=clock)

    @entity(store)
    class User:
        user_id: str

    @event(store, "purchase")
    class Purchase:
        """Something was bought."""

        amount: float
        channel: Channel = Channel.WEB
        note: str | None = None

    @event(store, "refund")
    class Refund:
        amount: Decimal
        order: UUID
        at: datetime
        day: date | None = None
        kind: Literal["full", "partial"] = "full"
        lines: list[Line] = field(default_factory=list)

    @feature(entity=User, trigger=["purchase", "refund"], default=0.0)
    async def balance(user_id: str, event: Event[Purchase | Refund]) -> float:
        before = await balance.get(user_id) or 0.0
        if isinstance(event.payload, Purchase):
            return before + event.payload.amount
        return before - float(event.payload.amount)

    @feature(entity=User, trigger="purchase")
    def last_channel(user_id: str, event: Event[Purchase]) -> str:
        return event.payload.channel.name

    @feature(entity=User, trigger=["purchase", "visit"])
    def last_payload(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        return event.payload

    async with store:
        yield store


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(store))
    async with AsyncClient("http://localhost", key=KEY, transport=transport) as client:
        yield client


async def test_a_payload_that_does_not_fit_is_refused_with_the_field(store: FeatureStore) -> None:
    with pytest.raises(EventError, match=r"payload\.amount .* 'purchase': Expected `float`") as got:
        await store.publish("purchase", "ada", {"amount": "much"})
    assert got.value.field == "payload.amount"
    with pytest.raises(EventError, match=r"missing; did you mean 'ammount'\?") as got:
        await store.publish("purchase", "ada", {"ammount": 5.0})
    assert got.value.field == "payload.amount"
    refund = {"amount": "5", "order": str(UUID(int=7)), "at": "2026-01-01T00:00:00Z"}
    lines = [{"item": "pen", "price": -1}]
    with pytest.raises(EventError, match="Expected `float` >= 0") as got:
        await store.publish("refund", "ada", {**refund, "lines": lines})
    assert got.value.field == "payload.lines[0].price"
    assert await store.bus.list() == []


async def test_a_batch_with_one_event_that_does_not_fit_is_refused_as_a_whole(
    store: FeatureStore,
) -> None:
    events = [ServiceEvent("purchase", "ada", {"amount": amount}) for amount in (1, None)]
    with pytest.raises(EventError, match=r"^event 1: payload\.amount") as got:
        await store.bus.publish_many(events)
    assert (got.value.index, got.value.field) == (1, "payload.amount")
    assert await store.bus.list() == []


async def test_undeclared_types_stay_free_form(store: FeatureStore) -> None:
    await store.publish("visit", "ada", {"amount": "much", "anything": [1, {}]})
    await store.drain()
    assert await store.get_feature("last_payload", "ada") == {
        "amount": "much",
        "anything": [1, {}],
    }


async def test_what_was_sent_is_stored_exactly(store: FeatureStore) -> None:
    sent = {"amount": 5, "unknown": {"kept": True}}
    await store.publish("purchase", "ada", sent, event_id="e-1")
    (logged,) = await store.bus.list()
    assert repr(logged.event.payload) == repr(sent)
    again = await store.bus.publish(ServiceEvent("purchase", "ada", sent, event_id="e-1"))
    assert again.duplicate
    await store.drain()
    assert await store.get_feature("last_payload", "ada") == sent
    assert await store.get_feature("balance", "ada") == 5.0


async def test_a_handler_takes_instances_of_the_classes_of_several_types(
    store: FeatureStore,
) -> None:
    purchase = declared(store, "purchase")
    refund = declared(store, "refund")
    await store.publish("purchase", "ada", purchase(amount=12.5, channel=Channel.SHOP))
    given = refund(
        amount=Decimal("2.5"),
        order=UUID(int=7),
        at=datetime(2026, 1, 1, tzinfo=UTC),
        day=date(2026, 1, 1),
        lines=[Line("pen", 2.5)],
    )
    event = await store.publish("refund", "ada", given)
    assert event.payload == {
        "amount": "2.5",
        "order": str(UUID(int=7)),
        "at": "2026-01-01T00:00:00Z",
        "day": "2026-01-01",
        "kind": "full",
        "lines": [{"item": "pen", "price": 2.5}],
    }
    await store.drain()
    assert await store.get_feature("balance", "ada") == 10.0
    assert await store.get_feature("last_channel", "ada") == "SHOP"
    assert await store.get_feature("last_payload", "ada") == {
        "amount": 12.5,
        "channel": "shop",
        "note": None,
    }
    at = datetime(2026, 1, 1)  # noqa: DTZ001 - what a sender may do
    naive = refund(amount=Decimal(1), order=UUID(int=7), at=at)
    with pytest.raises(EventError, match="without a time zone"):
        await store.publish("refund", "ada", naive)


async def test_over_http_the_problem_names_the_field_and_the_place_in_the_batch(
    store: FeatureStore,
) -> None:
    transport = httpx.ASGITransport(app=create_app(store))
    headers = {"x-api-key": KEY}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as http:
        one = await http.post("/ingest/purchase", json={"entity_id": "ada", "payload": {}})
        item = {"event_type": "purchase", "entity_id": "ada", "payload": {"amount": 1}}
        wrong = {**item, "payload": {"amount": 1, "channel": "letter"}}
        many = await http.post("/ingest", json=[item, wrong])
    assert (one.status_code, many.status_code) == (422, 422)
    assert one.json()["type"] == "urn:headwater:problem:invalid-event"
    assert one.json()["field"] == "payload.amount"
    assert "index" not in one.json()
    assert (many.json()["index"], many.json()["field"]) == (1, "payload.channel")
    problem = "Invalid enum value 'letter', not one of 'shop', 'web'"
    assert problem in many.json()["detail"]
    assert await store.bus.list() == []


async def test_a_client_publishes_instances_and_raises_the_same_error(
    store: FeatureStore, client: AsyncClient
) -> None:
    purchase = declared(store, "purchase")
    await client.publish("purchase", "ada", purchase(amount=3.0))
    wrong = ServiceEvent("purchase", "ada", {"amount": "much"})
    with pytest.raises(EventError) as here:
        await store.bus.publish_many([wrong, wrong])
    with pytest.raises(EventError) as there:
        await client.bus.publish_many([wrong, wrong])
    assert str(there.value) == str(here.value)
    assert (there.value.index, there.value.field) == (0, "payload.amount")
    with pytest.raises(EventError) as there:
        await client.publish("purchase", "ada", {"amount": "much"})
    assert there.value.field == "payload.amount"
    failed: list[FailedEvent] = []
    async with client.publisher(on_error=failed.append) as publisher:
        await publisher.publish(wrong)
    (refused,) = failed
    assert isinstance(refused.error, EventError)
    assert refused.error.field == "payload.amount"
    await store.drain()
    assert await store.get_feature("balance", "ada") == 3.0


@pytest.fixture
def reopened(settings: Settings, clock: ManualClock) -> Callable[[Any], FeatureStore]:
    """Return a function that opens the same data, with this class for purchases or none."""

    def declare(purchase: Any) -> FeatureStore:
        store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        if purchase is not None:
            event(store, "purchase")(purchase)

            @feature(entity=User, trigger="purchase", default=0.0)
            async def spend(user_id: str, event: Event[Any]) -> float:
                before: float = await store.get_feature("spend", user_id)
                return before + float(event.payload.amount)

        return store

    return declare


class First:
    amount: float


class Second:
    amount: float
    currency: str = "EUR"


class Lax:
    amount: float | str


async def test_a_stored_event_that_does_not_fit_is_a_dead_letter_until_the_class_takes_it(
    reopened: Callable[[Any], FeatureStore],
) -> None:
    async with reopened(None) as free:
        await free.publish("purchase", "ada", {"amount": "2.5"})
        await free.publish("purchase", "ada", {"amount": 4})
    async with reopened(First) as strict:
        await strict.drain()
        assert await strict.get_feature("spend", "ada") == 4.0
        (letter,) = await strict.dead_letters.list()
        assert letter.attempts == 1
        assert "payload.amount does not fit First" in letter.error
        assert "redrive the dead letter" in letter.error
    async with reopened(Lax) as lax:
        await lax.dead_letters.redrive(letter.id)
        await lax.drain()
        assert await lax.get_feature("spend", "ada") == 6.5
        assert await lax.dead_letters.list() == []


async def test_an_optional_field_is_a_new_version_that_takes_old_events(
    reopened: Callable[[Any], FeatureStore],
) -> None:
    async with reopened(First) as first:
        await first.publish("purchase", "ada", {"amount": 4})
    async with reopened(Second) as second:
        await second.publish("purchase", "ada", {"amount": 1.5, "currency": "EUR"})
        await second.drain()
        assert await second.get_feature("spend", "ada") == 5.5


async def test_a_backfill_gives_handlers_typed_events(
    reopened: Callable[[Any], FeatureStore],
) -> None:
    async with reopened(First) as store:
        await store.publish("purchase", "ada", {"amount": 4})
        await store.drain()
        await store.backfills.run("spend", switch=True)
        assert await store.get_feature("spend", "ada") == 4.0


def declared(store: FeatureStore, event_type: str) -> Any:
    """Return the class of the payload of a type."""
    return runtime_of(store).registry.events[event_type].payload
