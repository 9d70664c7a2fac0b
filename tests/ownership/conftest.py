"""A support desk: customers have tickets, tickets have messages, and agents work on tickets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.settings.schema import Settings
from headwater.testing import ManualClock


def declare_desk(store: FeatureStore) -> None:
    """Declare the entities, features and a context of the desk."""

    @entity(store)
    class Customer:
        customer_id: str

    @entity(store)
    class Merchant:
        merchant_id: str

    @entity(store, belongs_to={"customer_id": Customer})
    class Ticket:
        ticket_id: str

    @entity(store, belongs_to={"ticket_id": Ticket})
    class Message:
        message_id: int

    @feature(entity=Customer, trigger="signed_up")
    def plan(customer_id: str, event: ServiceEvent) -> str:
        return str(event.payload["plan"])

    @feature(entity=Merchant, trigger="purchase")
    def last_buyer(merchant_id: str, event: ServiceEvent) -> dict[str, str]:
        return {"customer": event.payload["customer_id"]}

    @feature(entity=Ticket, trigger=["ticket_opened", "ticket_changed"], max_retries=0)
    def subject(ticket_id: str, event: ServiceEvent) -> str:
        return str(event.payload["subject"])

    @feature(entity=Message, trigger="message_written")
    def text(message_id: int, event: ServiceEvent) -> str:
        return str(event.payload["text"])

    @context(store, max_tokens=100)
    async def ticket_view(ticket_id: str) -> list[ContextItem]:
        return [ContextItem(str(await store.get_feature("subject", ticket_id)))]


@pytest.fixture
async def desk(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """An open support desk."""
    store = FeatureStore(settings=settings, clock=clock)
    declare_desk(store)
    async with store:
        yield store


async def open_ticket(desk: FeatureStore, ticket: str, customer: str, **payload: object) -> None:
    """Publish that a customer opened a ticket."""
    await desk.publish(
        "ticket_opened", ticket, {"customer_id": customer, "subject": f"of {customer}", **payload}
    )
