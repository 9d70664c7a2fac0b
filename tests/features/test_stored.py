"""Stored features: only other handlers, ``set_feature`` and imports write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import BackfillRefusedError, DeclarationError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class Customer:
        customer_id: str

    @entity(store)
    class Ticket:
        ticket_id: str

    @feature(entity=Customer, default=0, stored=True)
    def open_tickets(customer_id: str) -> int:
        raise AssertionError("a stored feature never runs")

    @feature(entity=Ticket, trigger=["ticket_opened", "ticket_closed"])
    async def state(ticket_id: str, event: ServiceEvent) -> str:
        customer_id, is_opened = event.payload["customer_id"], event.event_type == "ticket_opened"
        count = await open_tickets.get(customer_id) or 0
        await open_tickets.set(customer_id, count + (1 if is_opened else -1))
        return "open" if is_opened else "closed"

    @feature(entity=Customer, template="{open_tickets} open tickets")
    def summary(customer_id: str) -> str:
        raise AssertionError("a template never runs")

    async with store:
        yield store


async def test_a_stored_feature_has_its_default_until_it_is_written(store: FeatureStore) -> None:
    assert await store.get_feature("open_tickets", "c-7") == 0
    assert await store.get_feature("summary", "c-7") == "0 open tickets"
    await store.set_feature("open_tickets", "c-7", 3)
    assert await store.get_feature("summary", "c-7") == "3 open tickets"


async def test_handlers_of_another_entity_write_a_stored_feature_once(store: FeatureStore) -> None:
    for ticket in ("t-1", "t-2", "t-3"):
        await store.publish("ticket_opened", ticket, {"customer_id": "c-7"}, event_id=ticket)
    await store.publish("ticket_opened", "t-1", {"customer_id": "c-7"}, event_id="t-1")
    await store.publish("ticket_closed", "t-2", {"customer_id": "c-7"})
    await store.drain()
    assert await store.get_feature("open_tickets", "c-7") == 2


async def test_a_stored_feature_has_a_past_and_can_be_rebuilt(
    store: FeatureStore, clock: ManualClock
) -> None:
    before = clock.now()
    clock.advance(timedelta(hours=1))
    await store.publish("ticket_opened", "t-1", {"customer_id": "c-7"})
    await store.drain()
    rows = [{"customer_id": "c-7", "timestamp": at} for at in (before, clock.now())]
    table = await store.get_historical_features(rows, ["open_tickets", "summary"])
    assert [row["open_tickets"] for row in table] == [0, 1]
    assert [row["summary"] for row in table] == ["0 open tickets", "1 open tickets"]
    (past,) = await store.get_feature_history("open_tickets", "c-7")
    assert past.value == 1
    report = await store.admin.audit()
    assert not report.differences
    await store.admin.rebuild()
    assert await store.get_feature("open_tickets", "c-7") == 1


async def test_a_stored_feature_is_forgotten_with_its_entity(store: FeatureStore) -> None:
    await store.set_feature("open_tickets", "c-7", 3)
    await store.admin.forget("Customer", "c-7", reason="asked")
    assert await store.get_feature("open_tickets", "c-7") == 0
    assert await store.get_feature_history("open_tickets", "c-7") == []


async def test_a_stored_feature_cannot_be_backfilled(store: FeatureStore) -> None:
    with pytest.raises(BackfillRefusedError, match="it has no trigger"):
        await store.backfills.run("open_tickets")


@pytest.mark.parametrize(
    "option", [{"trigger": "purchase"}, {"refresh": "1h"}, {"template": "{x}"}, {"log": True}]
)
def test_a_stored_feature_is_computed_in_no_way(option: dict[str, object]) -> None:
    store = FeatureStore()

    @entity(store)
    class Customer:
        customer_id: str

    (name,) = option
    with pytest.raises(DeclarationError, match=f"stored and {name} cannot be combined"):

        @feature(entity=Customer, stored=True, **option)  # type: ignore[arg-type]
        def open_tickets(customer_id: str) -> int:
            return 0
