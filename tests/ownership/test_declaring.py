"""``belongs_to``: a declaration, and a feature with the owner's id."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError
from headwater.store.listings import declarations_of
from headwater.testing import ManualClock
from tests.ownership.conftest import declare_desk, open_ticket


@pytest.mark.both_environments
async def test_a_ticket_belongs_to_the_customer_that_its_events_name(desk: FeatureStore) -> None:
    await open_ticket(desk, "t-1", "c-7")
    await desk.publish("ticket_changed", "t-1", {"subject": "printer"})
    await desk.publish("ticket_changed", "t-1", {"subject": "screen", "customer_id": None})
    await desk.drain()
    assert await desk.get_feature("ticket_customer_id", "t-1") == "c-7"
    assert len(await desk.get_feature_history("ticket_customer_id", "t-1")) == 1
    await desk.publish("ticket_changed", "t-1", {"subject": "screen", "customer_id": "c-8"})
    await desk.drain()
    assert await desk.get_feature("ticket_customer_id", "t-1") == "c-8"


@pytest.mark.both_environments
async def test_an_event_that_comes_late_does_not_change_the_owner(
    desk: FeatureStore, clock: ManualClock
) -> None:
    earlier = clock.now()
    clock.advance(timedelta(hours=1))
    await open_ticket(desk, "t-1", "c-7")
    await desk.publish(
        "ticket_changed", "t-1", {"subject": "old", "customer_id": "c-6"}, timestamp=earlier
    )
    await desk.drain()
    assert await desk.get_feature("ticket_customer_id", "t-1") == "c-7"
    table = await desk.get_historical_features(
        [{"ticket_id": "t-1", "timestamp": earlier}], ["ticket_customer_id"]
    )
    assert [row["ticket_customer_id"] for row in table] == ["c-6"]


@pytest.mark.both_environments
async def test_a_chain_of_owners_has_a_feature_for_each_step(desk: FeatureStore) -> None:
    await open_ticket(desk, "t-1", "c-7")
    await desk.publish("message_written", "5", {"ticket_id": "t-1", "text": "hello"})
    await desk.drain()
    assert await desk.get_feature("message_ticket_id", 5) == "t-1"


@pytest.mark.both_environments
async def test_an_owner_that_is_no_id_is_a_dead_letter_of_the_implied_feature(
    desk: FeatureStore,
) -> None:
    await desk.publish("ticket_opened", "t-1", {"customer_id": 7, "subject": "printer"})
    await desk.drain()
    (letter,) = await desk.dead_letters.list()
    assert letter.feature == "ticket_customer_id"
    assert "customer_id must be text (str), not the int 7" in letter.error
    assert await desk.get_feature("subject", "t-1") == "printer"


@pytest.mark.both_environments
async def test_the_implied_feature_is_backfilled_and_rebuilt(desk: FeatureStore) -> None:
    await open_ticket(desk, "t-1", "c-7")
    await desk.publish("ticket_changed", "t-1", {"subject": "printer"})
    await desk.drain()
    await desk.backfills.run("ticket_customer_id")
    assert await desk.get_feature("ticket_customer_id", "t-1") == "c-7"
    await desk.admin.rebuild()
    assert await desk.get_feature("ticket_customer_id", "t-1") == "c-7"
    assert not (await desk.admin.audit()).differences


def test_listings_and_the_graph_show_what_belongs_to_whom() -> None:
    store = FeatureStore()
    declare_desk(store)
    listing = declarations_of(store)
    belongs = {each.name: dict(each.belongs_to) for each in listing.entities}
    assert belongs["Ticket"] == {"customer_id": "Customer"}
    assert belongs["Customer"] == {}
    owners = {each.name: each.belongs_to for each in listing.features if each.belongs_to}
    assert owners == {"ticket_customer_id": "Customer", "message_ticket_id": "Ticket"}
    implied = next(each for each in listing.features if each.name == "ticket_customer_id")
    assert list(implied.triggers) == ["ticket_opened", "ticket_changed"]
    edges = {(edge.source, edge.target) for edge in listing.graph.edges}
    assert ("entity:Ticket", "entity:Customer") in edges
    assert ("feature:ticket_customer_id", "entity:Ticket") in edges
    assert ("event:ticket_opened", "feature:ticket_customer_id") in edges
    assert 'n0(("Ticket"))' in listing.graph.to_mermaid()


def test_a_feature_with_the_name_takes_the_place_of_the_implied_one(store: FeatureStore) -> None:
    @entity(store)
    class Customer:
        customer_id: int

    @entity(store)
    class Agent:
        agent_id: str

    @entity(store, belongs_to={"customer": Customer, "agent_id": Agent})
    class SupportTicket:
        ticket_id: str

    @feature(entity=SupportTicket, trigger="ticket_opened")
    def customer(ticket_id: str, event: ServiceEvent) -> int:
        return int(event.payload["opened_by"]["id"])

    registry = runtime_of(store).registry
    assert list(registry.features) == ["support_ticket_agent_id", "customer"]
    owners = [
        (held.name, owner.name) for held, owner in registry.owners(registry.entity("SupportTicket"))
    ]
    assert owners == [("customer", "Customer"), ("support_ticket_agent_id", "Agent")]
    with pytest.raises(DeclarationError, match="must store them: declare it with trigger="):

        @feature(entity=SupportTicket)
        def agent_id(ticket_id: str) -> str:
            return "a-1"


def test_an_owner_is_an_entity_of_the_same_store_that_was_declared_before(
    store: FeatureStore,
) -> None:
    class Stranger:
        stranger_id: str

    class Ticket:
        ticket_id: str

    with pytest.raises(DeclarationError, match="which is not an entity; decorate its class"):
        entity(store, belongs_to={"stranger_id": Stranger})(Ticket)
    other = FeatureStore()
    entity(other, Stranger)
    with pytest.raises(DeclarationError, match="'Stranger', an entity of another store"):
        entity(store, belongs_to={"stranger_id": Stranger})(Ticket)
    with pytest.raises(DeclarationError, match="belongs_to must name entities by the field"):
        entity(store, belongs_to=Stranger)(Ticket)  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="'stranger id' is not an identifier"):
        entity(store, belongs_to={"stranger id": Stranger})(Ticket)
