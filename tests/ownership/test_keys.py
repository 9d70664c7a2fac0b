"""Keys that are limited to a customer may read their tickets, and nothing of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from headwater import FeatureStore, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import CallerLimitError, UnknownContextError
from headwater.model.callers import Caller, CallerLimits, current_caller, set_caller
from headwater.store.entity_reads import read_entity
from headwater.store.finding import find
from headwater.testing import ManualClock
from tests.ownership.conftest import open_ticket

pytestmark = pytest.mark.both_environments


@contextmanager
def calling_as(customer: str, entities: frozenset[str] | None = None) -> Iterator[None]:
    """Run the code inside for a key that is limited to a customer."""
    limits = CallerLimits(ids=frozenset({customer}), entities=entities)
    set_caller(Caller(f"key of {customer}", limits=limits))
    try:
        yield
    finally:
        set_caller(None)


async def _fill(desk: FeatureStore) -> None:
    for customer in ("c-7", "c-71"):
        await desk.publish("signed_up", customer, {"plan": "free"})
        await open_ticket(desk, f"t-{customer}", customer)
    for number, ticket in ((1, "t-c-7"), (2, "t-c-71")):
        await desk.publish("message_written", str(number), {"ticket_id": ticket, "text": "hello"})
    await desk.drain()


async def test_a_key_of_a_customer_reads_their_tickets_and_messages(desk: FeatureStore) -> None:
    await _fill(desk)
    with calling_as("c-7"):
        assert await desk.get_feature("plan", "c-7") == "free"
        assert await desk.get_feature("subject", "t-c-7") == "of c-7"
        assert await desk.get_features(["text"], [1]) == {1: {"text": "hello"}}
        (past,) = await desk.get_feature_history("subject", "t-c-7")
        assert past.value == "of c-7"
        for name, other in (("plan", "c-71"), ("subject", "t-c-71"), ("text", 2)):
            with pytest.raises(CallerLimitError, match="is not among those of the key"):
                await desk.get_feature(name, other)
            with pytest.raises(CallerLimitError):
                await desk.get_feature_history(name, other)
        with pytest.raises(CallerLimitError, match="and belongs to none that the key may use"):
            await desk.get_features(["subject"], ["t-c-7", "t-unknown"])


async def test_classes_stay_limited_and_an_owner_counts_only_if_the_key_may_use_it(
    desk: FeatureStore,
) -> None:
    await _fill(desk)
    problem = "the entity 'Ticket' is not among Customer"
    with (
        calling_as("c-7", frozenset({"Customer"})),
        pytest.raises(CallerLimitError, match=problem),
    ):
        await desk.get_feature("subject", "t-c-7")
    with calling_as("c-7", frozenset({"Ticket", "Merchant"})), pytest.raises(CallerLimitError):
        await desk.get_feature("subject", "t-c-7")
    with calling_as("c-7", frozenset({"Ticket", "Customer"})):
        assert await desk.get_feature("subject", "t-c-7") == "of c-7"


async def test_a_tenant_is_a_prefix_of_the_ids_of_owners_too(desk: FeatureStore) -> None:
    await open_ticket(desk, "t-1", "acme/c-7")
    await open_ticket(desk, "t-2", "bell/c-7")
    await desk.drain()
    set_caller(Caller("acme", limits=CallerLimits(tenant="acme/")))
    assert await desk.get_feature("subject", "t-1") == "of acme/c-7"
    with pytest.raises(CallerLimitError, match="does not begin with 'acme/', and belongs to none"):
        await desk.get_feature("subject", "t-2")
    set_caller(None)


async def test_the_present_owner_counts_also_for_the_past(
    desk: FeatureStore, clock: ManualClock
) -> None:
    await _fill(desk)
    clock.advance(timedelta(seconds=1))
    await desk.publish("ticket_changed", "t-c-7", {"subject": "moved", "customer_id": "c-71"})
    await desk.drain()
    with calling_as("c-7"), pytest.raises(CallerLimitError):
        await desk.get_feature_history("subject", "t-c-7")
    with calling_as("c-71"):
        assert len(await desk.get_feature_history("subject", "t-c-7")) == 2


async def test_contexts_retrievers_and_records_follow_ownership(desk: FeatureStore) -> None:
    @retriever(desk)
    async def subjects(ticket_id: str) -> list[str]:
        return [str(await desk.get_feature("subject", ticket_id))]

    await _fill(desk)
    of_other = await desk.assemble("ticket_view", {"ticket_id": "t-c-71"})
    with calling_as("c-7"):
        own = await desk.assemble("ticket_view", {"ticket_id": "t-c-7"})
        assert own.content == "of c-7"
        found = await desk.records.find(feature="subject")
        assert [each.context_id for each in found.contexts] == [own.context_id]
        with pytest.raises(CallerLimitError):
            await desk.assemble("ticket_view", {"ticket_id": "t-c-71"})
        with pytest.raises(UnknownContextError):
            await desk.get_context_at(of_other.context_id or "")
    await desk.admin.forget("Customer", "c-7", reason="asked")
    with calling_as("c-7"), pytest.raises(UnknownContextError):
        await desk.get_context_at(own.context_id or "")


async def test_lookups_show_only_what_belongs(desk: FeatureStore) -> None:
    await _fill(desk)
    runtime = runtime_of(desk)
    with calling_as("c-7"):
        values = await read_entity(runtime, "Ticket", "t-c-7", lambda error: None)  # type: ignore[arg-type,return-value]
        assert {each.feature for each in values.values} == {"subject", "ticket_customer_id"}
        with pytest.raises(CallerLimitError):
            await read_entity(runtime, "Ticket", "t-c-71", lambda error: None)  # type: ignore[arg-type,return-value]
        # The id of another ticket begins with that of their own.
        found = await find(runtime, "t-c-7", 10, current_caller())
        assert [each.name for each in found.found if each.kind == "entity_id"] == ["t-c-7"]


async def test_a_key_publishes_events_of_their_tickets_and_begins_new_ones(
    desk: FeatureStore,
) -> None:
    await _fill(desk)
    with calling_as("c-7"):
        await desk.publish("ticket_changed", "t-c-7", {"subject": "screen"})
        await open_ticket(desk, "t-new", "c-7")
        await desk.publish("ticket_changed", "t-new", {"subject": "while the first event waits"})
        await desk.publish("message_written", "9", {"ticket_id": "t-c-7", "text": "again"})
    await desk.drain()
    assert await desk.get_feature("subject", "t-c-7") == "screen"
    assert await desk.get_feature("subject", "t-new") == "while the first event waits"
    assert await desk.get_feature("message_ticket_id", 9) == "t-c-7"


async def test_a_key_takes_no_ticket_of_others_and_gives_none_to_them(desk: FeatureStore) -> None:
    await _fill(desk)
    await open_ticket(desk, "t-waiting", "c-71")
    refused: list[tuple[str, str, dict[str, object], str]] = [
        ("ticket_changed", "t-c-71", {"subject": "x"}, "belongs to none that the key may use"),
        ("ticket_changed", "t-c-71", {"subject": "x", "customer_id": "c-7"}, "belongs to none"),
        ("ticket_opened", "t-waiting", {"subject": "x", "customer_id": "c-7"}, "belongs to none"),
        ("ticket_opened", "t-new", {"subject": "x"}, "belongs to none that the key may use"),
        (
            "ticket_opened",
            "t-new",
            {"subject": "x", "customer_id": "c-71"},
            "names Customer 'c-71'",
        ),
        ("ticket_changed", "t-c-7", {"subject": "x", "customer_id": "c-71"}, "names Customer"),
        ("message_written", "9", {"ticket_id": "t-c-71", "text": "x"}, "names Ticket 't-c-71'"),
        ("message_written", "2", {"ticket_id": "t-c-7", "text": "x"}, "belongs to none"),
        ("untriggered", "t-c-7", {}, "is not among those of the key"),
    ]
    with calling_as("c-7"):
        for event_type, entity_id, payload, problem in refused:
            with pytest.raises(CallerLimitError, match=problem):
                await desk.publish(event_type, entity_id, payload)
    await desk.drain()
    assert await desk.get_feature("ticket_customer_id", "t-waiting") == "c-71"
