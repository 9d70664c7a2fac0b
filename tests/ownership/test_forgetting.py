"""``forget Customer c-7`` finds their tickets, and counts what else mentions them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.engine import places
from headwater.errors import CallerLimitError, EventConflictError, InvalidInputError
from headwater.model.admin import MentionCounts
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.testing import ManualClock
from tests.ownership.conftest import open_ticket

pytestmark = pytest.mark.both_environments


async def _fill(desk: FeatureStore) -> None:
    """Two customers, each with tickets and messages."""
    for number, customer in enumerate(("c-7", "c-71")):
        await desk.publish("signed_up", customer, {"plan": "free"})
        for ticket in (f"t-{customer}-1", f"t-{customer}-2"):
            await open_ticket(desk, ticket, customer)
        await desk.publish(
            "message_written", str(number), {"ticket_id": f"t-{customer}-1", "text": "hello"}
        )
    await desk.drain()


async def _subjects(desk: FeatureStore) -> dict[str, object]:
    ids = [f"t-{customer}-{number}" for customer in ("c-7", "c-71") for number in (1, 2)]
    return {each: await desk.get_feature("subject", each) for each in ids}


async def test_forget_customer_c_7_finds_their_tickets_and_their_messages(
    desk: FeatureStore,
) -> None:
    await _fill(desk)
    seen = await desk.assemble("ticket_view", {"ticket_id": "t-c-7-1"})
    counted = await desk.admin.forget("Customer", "c-7", reason="asked", dry_run=True)
    assert await desk.get_feature("subject", "t-c-7-1") == "of c-7"
    report = await desk.admin.forget("Customer", "c-7", reason="asked")
    assert report.belonging == {"Ticket": ["t-c-7-1", "t-c-7-2"], "Message": ["0"]}
    assert (report.values, report.events, report.records) == (7, 4, 1)
    assert (counted.belonging, counted.values) == (report.belonging, report.values)
    assert report.mentions == MentionCounts()
    assert await _subjects(desk) == {
        "t-c-7-1": None,
        "t-c-7-2": None,
        "t-c-71-1": "of c-71",
        "t-c-71-2": "of c-71",
    }
    assert await desk.get_feature("text", 0) is None
    assert await desk.get_feature("text", 1) == "hello"
    assert await desk.get_feature_history("subject", "t-c-7-2") == []
    assert (await desk.get_context_at(seen.context_id or "")).content is None
    again = await desk.admin.forget("Customer", "c-7", reason="asked")
    assert (again.belonging, again.values, again.events) == ({}, 0, 0)


async def test_late_events_of_their_tickets_and_new_ones_that_name_them_are_refused(
    desk: FeatureStore,
) -> None:
    await _fill(desk)
    await open_ticket(desk, "t-waiting", "c-7")
    await desk.admin.forget("Customer", "c-7", reason="asked")
    for ticket, payload in (
        ("t-c-7-1", {"subject": "late"}),
        ("t-new", {"subject": "new", "customer_id": "c-7"}),
    ):
        with pytest.raises(EventConflictError, match="was erased, or names an owner that was"):
            await desk.publish("ticket_changed", ticket, payload)
    with pytest.raises(EventConflictError):
        await desk.publish("message_written", "9", {"ticket_id": "t-c-7-1", "text": "late"})
    await desk.drain()
    assert await desk.get_feature("subject", "t-waiting") is None


async def test_with_allow_return_their_tickets_may_return_too(
    desk: FeatureStore, clock: ManualClock
) -> None:
    await _fill(desk)
    await desk.admin.forget("Customer", "c-7", reason="asked", allow_return=True)
    clock.advance(timedelta(seconds=1))
    await open_ticket(desk, "t-c-7-1", "c-7")
    await desk.drain()
    assert await desk.get_feature("ticket_customer_id", "t-c-7-1") == "c-7"


async def test_a_ticket_that_belongs_to_another_by_now_stays_and_is_counted(
    desk: FeatureStore, clock: ManualClock
) -> None:
    await _fill(desk)
    clock.advance(timedelta(seconds=1))
    await desk.publish("ticket_changed", "t-c-7-2", {"subject": "moved", "customer_id": "c-71"})
    await desk.drain()
    report = await desk.admin.forget("Customer", "c-7", reason="asked")
    assert report.belonging["Ticket"] == ["t-c-7-1"]
    assert await desk.get_feature("subject", "t-c-7-2") == "moved"
    # The event that opened it names the customer, and so does the past value of its owner.
    assert report.mentions == MentionCounts(events=1, values=1)


async def test_a_forgetting_that_was_interrupted_is_completed_by_the_next(
    desk: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(desk)
    engine = await runtime_of(desk).open()
    offline, forgotten = engine.backends.offline, []

    async def crash(entity: str, entity_id: str, **options: object) -> object:
        forgotten.append(entity_id)
        if len(forgotten) == 2:
            raise InvalidInputError("the process ends here")
        return await inner(entity, entity_id, **options)  # type: ignore[arg-type]

    inner = offline.forget
    with monkeypatch.context() as patched:
        patched.setattr(offline, "forget", crash)
        with pytest.raises(InvalidInputError, match="ends here"):
            await desk.admin.forget("Customer", "c-7", reason="asked")
    assert await desk.get_feature("subject", "t-c-7-2") is None
    report = await desk.admin.forget("Customer", "c-7", reason="asked")
    assert report.belonging == {"Ticket": ["t-c-7-1", "t-c-7-2"], "Message": ["0"]}
    events = await desk.bus.list()
    assert {event.event.entity_id for event in events} == {"c-71", "t-c-71-1", "t-c-71-2", "1"}


async def test_the_steps_with_ids_of_what_belongs_come_before_history_is_erased() -> None:
    steps = list(dict.fromkeys(place.erase for place in places.PLACES if place.erase is not None))
    before = steps[: steps.index(places._erase_history_and_events)]  # noqa: SLF001
    assert {step.__name__ for step in before} == {
        *("_erase_dead_letters", "_erase_records", "_erase_backfill_folders", "_erase_values")
    }


async def test_a_thing_with_two_owners_is_forgotten_with_either(store: FeatureStore) -> None:
    @entity(store)
    class Customer:
        customer_id: int

    @entity(store)
    class Agent:
        agent_id: str

    @entity(store, belongs_to={"customer": Customer, "agent_id": Agent})
    class Ticket:
        ticket_id: str

    @feature(entity=Ticket, trigger="ticket_opened")
    def customer(ticket_id: str, event: ServiceEvent) -> int:
        return int(event.payload["opened_by"]["id"])

    async with store:
        for ticket, number, agent in (("t-1", 7, "a-1"), ("t-2", 8, "a-1"), ("t-3", 8, "a-2")):
            payload = {"opened_by": {"id": number}, "agent_id": agent}
            await store.publish("ticket_opened", ticket, payload)
        await store.drain()
        report = await store.admin.forget("Customer", 7, reason="asked")
        assert report.belonging == {"Ticket": ["t-1"]}
        report = await store.admin.forget("Agent", "a-1", reason="asked")
        assert report.belonging == {"Ticket": ["t-2"]}
        assert await store.get_feature("customer", "t-3") == 8


async def test_the_report_counts_what_others_have_with_the_id_and_a_command_lists_it(
    desk: FeatureStore,
) -> None:
    await _fill(desk)
    for purchase in (
        {"customer_id": "c-7", "note": "for c-7"},
        {"customer_id": "c-71", "friends": ["c-7", "c-8"], "by": {"c-7": 3}},
        {"customer_id": "c-71", "note": "c-7 and others"},
    ):
        await desk.publish("purchase", "m-1", purchase)
    await desk.publish("purchase", "m-2", {"buyer": "c-7"})
    await desk.drain()
    report = await desk.admin.forget("Customer", "c-7", reason="asked")
    assert report.mentions == MentionCounts(events=3, values=1, dead_letters=1)
    pages = [await desk.admin.mentions("Customer", "c-7", limit=2)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(await desk.admin.mentions("Customer", "c-7", limit=2, cursor=cursor))
    mentions = [mention for page in pages for mention in page.mentions]
    assert [(each.kind, each.name, each.entity_id, list(each.pointers)) for each in mentions] == [
        ("event", "purchase", "m-1", ["/customer_id"]),
        ("event", "purchase", "m-1", ["/friends/0", "/by/c-7"]),
        ("event", "purchase", "m-2", ["/buyer"]),
        ("value", "last_buyer", "m-1", ["/customer"]),
        ("dead_letter", "purchase", "m-2", ["/buyer"]),
    ]
    with pytest.raises(InvalidInputError, match="cursor 'zz' is none of this list"):
        await desk.admin.mentions("Customer", "c-7", cursor="zz")


async def test_the_audit_log_has_no_id_of_what_belongs(desk: FeatureStore) -> None:
    await _fill(desk)
    await desk.admin.forget("Customer", "c-7", reason="asked")
    (entry,) = (await desk.audit_log(action="admin.forget")).entries
    assert "c-7" not in str(entry.parameters)


async def test_a_key_without_the_class_of_what_belongs_forgets_nothing(desk: FeatureStore) -> None:
    await _fill(desk)
    set_caller(Caller("ops", limits=CallerLimits(entities=frozenset({"Customer"}))))
    with pytest.raises(CallerLimitError, match="the entity 'Ticket' is not among Customer"):
        await desk.admin.forget("Customer", "c-7", reason="asked")
    with pytest.raises(CallerLimitError, match="mentions does not apply limits"):
        await desk.admin.mentions("Customer", "c-7")
    set_caller(None)
    assert await desk.get_feature("plan", "c-7") == "free"
