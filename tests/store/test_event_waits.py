"""Read your writes: a publish with ``wait`` returns when the event's features are visible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headwater import FeatureStore, Index, ServiceEvent, Worker, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import EventConflictError, InvalidInputError
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.model.events import PublishedEvent
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, until

pytestmark = pytest.mark.both_environments

PATIENT = "60s"
BRIEF = "50ms"


@asynccontextmanager
async def working(*stores: FeatureStore) -> AsyncIterator[None]:
    """Run a worker of each store, and stop them at the end."""
    workers = [Worker(store) for store in stores]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        for store in stores:
            groups = (await runtime_of(store).open()).backends.groups
            name = store.settings.worker.consumer_group
            await until(lambda groups=groups, name=name: groups.declared(name))  # type: ignore[misc]
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


class Gate:
    """Holds back a handler, and makes it fail."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.fails = False


@pytest.fixture
def gate(store: FeatureStore, user: type) -> Gate:
    """Return what decides about the feature ``bought`` of the store."""
    return declare(store, user)


def declare(store: FeatureStore, user: type) -> Gate:
    gate = Gate()

    @feature(entity=user, trigger="buy", default=0, max_retries=0)
    async def bought(user_id: str, event: ServiceEvent) -> int:
        await gate.is_open.wait()
        if gate.fails:
            raise ValueError("a secret of the shop")
        return int(await store.get_feature("bought", user_id) or 0) + 1

    return gate


async def test_publish_with_wait_returns_when_the_features_of_the_event_are_visible(
    store: FeatureStore, gate: Gate
) -> None:
    async with working(store):
        for number in range(1, 30):
            event = await store.publish("buy", f"u{number % 3}", wait=PATIENT)
            assert isinstance(event, PublishedEvent)
            assert (event.visible, event.problem) == (True, "")
            assert await store.get_feature("bought", f"u{number % 3}") == (number + 2) // 3


async def test_without_wait_the_event_is_returned_as_before(
    store: FeatureStore, gate: Gate
) -> None:
    event = await store.publish("buy", "u1")
    assert type(event) is ServiceEvent
    result = await store.bus.publish(ServiceEvent("buy", "u1"))
    assert (result.visible, result.problem, result.position) == (None, "", "")


async def test_a_worker_of_another_store_object_ends_the_wait(
    store: FeatureStore, gate: Gate, settings: Settings
) -> None:
    publisher = FeatureStore(settings=settings)
    async with working(store), publisher:
        # It declares nothing: what the running workers declare decides what there is to wait for.
        event = await publisher.publish("buy", "u1", wait=PATIENT)
        assert event.visible
        assert await store.get_feature("bought", "u1") == 1


async def test_the_time_of_the_wait_is_real_also_with_a_manual_clock(
    store: FeatureStore, gate: Gate, clock: ManualClock
) -> None:
    gate.is_open.clear()
    began = time.monotonic()
    async with working(store):
        event = await store.publish("buy", "u1", wait=BRIEF)
        assert time.monotonic() - began >= 0.05
        assert not event.visible
        gate.is_open.set()


async def test_an_event_that_no_worker_handles_says_that_none_is_running(
    store: FeatureStore, gate: Gate
) -> None:
    event = await store.publish("buy", "u1", wait=BRIEF)
    assert not event.visible
    assert event.problem.startswith(
        "no worker is running in the consumer group 'headwater_workers'"
    )
    assert await backlog(store) == 1


async def test_drain_in_the_same_process_ends_the_wait(store: FeatureStore, gate: Gate) -> None:
    publishing = asyncio.create_task(store.publish("buy", "u1", wait=PATIENT))
    await until(lambda: has_backlog(store))
    await store.drain()
    assert (await publishing).visible


async def has_backlog(store: FeatureStore) -> bool:
    return await backlog(store) > 0


async def test_an_event_that_triggers_nothing_is_visible_at_once(
    store: FeatureStore, gate: Gate
) -> None:
    event = await store.publish("look", "u1", wait=PATIENT)
    assert event.visible


async def test_workers_without_the_triggered_feature_are_named_as_the_problem(
    store: FeatureStore, gate: Gate, settings: Settings, clock: ManualClock
) -> None:
    older = FeatureStore(settings=settings, clock=clock)

    @entity(older)
    class User:
        user_id: str

    @feature(entity=User, trigger="look", default=0)
    async def looked(user_id: str, event: ServiceEvent) -> int:
        return 1

    async with older, working(older):
        event = await store.publish("buy", "u1", wait=PATIENT)
    assert not event.visible
    assert "no running worker has a feature that 'buy' triggers" in event.problem


async def test_an_event_behind_others_says_how_many_wait(store: FeatureStore, gate: Gate) -> None:
    gate.is_open.clear()
    async with working(store):
        await store.publish("buy", "u1")
        await store.publish("buy", "u1")
        event = await store.publish("buy", "u1", wait=BRIEF)
        assert event.problem == "not handled within 50ms: 3 events of its partition wait, with it"
        gate.is_open.set()


async def test_a_handler_that_has_not_finished_is_the_problem(
    store: FeatureStore, gate: Gate
) -> None:
    gate.is_open.clear()
    async with working(store):
        event = await store.publish("buy", "u1", wait=BRIEF)
        assert event.problem.startswith("not handled within 50ms: its handlers run, or are retried")
        gate.is_open.set()
        again = await store.publish("buy", "u1", wait=PATIENT)
        assert again.visible
        assert await store.get_feature("bought", "u1") == 2


async def test_a_dead_letter_names_the_feature_and_not_its_error(
    store: FeatureStore, gate: Gate
) -> None:
    gate.fails = True
    async with working(store):
        event = await store.publish("buy", "u1", wait=PATIENT)
        assert not event.visible
        assert event.problem.startswith("bought could not handle it; see `headwater dlq list`")
        gate.fails = False
        # The dead letter of the earlier event is not this event's problem.
        assert (await store.publish("buy", "u1", wait=PATIENT)).visible
        assert (await store.publish("buy", "u2", wait=PATIENT)).visible


async def test_a_limited_caller_does_not_learn_which_feature_failed(
    store: FeatureStore, gate: Gate
) -> None:
    gate.fails = True
    async with working(store):
        set_caller(Caller("acme", limits=CallerLimits(tenant="acme-")))
        try:
            event = await store.publish("buy", "acme-1", wait=PATIENT)
        finally:
            set_caller(None)
    assert event.problem.startswith("a feature could not handle it")


async def test_a_duplicate_is_visible_when_the_first_one_is(
    store: FeatureStore, gate: Gate
) -> None:
    gate.is_open.clear()
    async with working(store):
        await store.publish("buy", "u1", event_id="e1")
        waiting = await store.publish("buy", "u1", event_id="e1", wait=BRIEF)
        assert not waiting.visible
        gate.is_open.set()
        assert (await store.publish("buy", "u1", event_id="e1", wait=PATIENT)).visible
        result = await store.bus.publish(ServiceEvent("buy", "u1", event_id="e1"), wait=PATIENT)
        assert (result.duplicate, result.visible) == (True, True)
        assert await store.get_feature("bought", "u1") == 1


async def test_a_duplicate_of_a_dead_letter_is_not_visible(store: FeatureStore, gate: Gate) -> None:
    gate.fails = True
    async with working(store):
        await store.publish("buy", "u1", event_id="e1", wait=PATIENT)
        event = await store.publish("buy", "u1", event_id="e1", wait=PATIENT)
    assert "bought could not handle it" in event.problem


async def test_a_duplicate_is_visible_although_another_event_of_its_entity_failed(
    store: FeatureStore, gate: Gate
) -> None:
    async with working(store):
        await store.publish("buy", "u1", event_id="e1", wait=PATIENT)
        gate.fails = True
        await store.publish("buy", "u1", event_id="e2", wait=PATIENT)
        assert (await store.publish("buy", "u1", event_id="e1", wait=PATIENT)).visible
        (letter,) = await store.dead_letters.list()
        await store.dead_letters.redrive(letter.id)
        again = await store.publish("buy", "u1", event_id="e2", wait=PATIENT)
    assert "bought could not handle it" in again.problem


async def test_a_conflicting_event_is_refused_as_without_wait(
    store: FeatureStore, gate: Gate
) -> None:
    await store.publish("buy", "u1", {"amount": 1}, event_id="e1")
    with pytest.raises(EventConflictError):
        await store.publish("buy", "u1", {"amount": 2}, event_id="e1", wait=PATIENT)


async def test_a_batch_waits_for_all_its_events(store: FeatureStore, gate: Gate) -> None:
    async with working(store):
        events = [ServiceEvent("buy", f"u{number}") for number in range(20)]
        results = await store.bus.publish_many([*events, ServiceEvent("look", "u1")], wait=PATIENT)
        assert [result.visible for result in results] == [True] * 21
        values = [await store.get_feature("bought", f"u{number}") for number in range(20)]
        assert values == [1] * 20
        assert await store.bus.publish_many([], wait=PATIENT) == []


async def test_a_handler_cannot_wait(store: FeatureStore, user: type) -> None:
    refused: list[str] = []

    @feature(entity=user, trigger="buy", max_retries=0)
    async def chained(user_id: str, event: ServiceEvent) -> None:
        with pytest.raises(InvalidInputError) as error:
            await store.publish("sell", user_id, wait=BRIEF)
        refused.append(str(error.value))

    await store.publish("buy", "u1")
    await store.drain()
    assert refused == [
        "a handler cannot wait for an event: events of its partition run after it; publish "
        "without wait="
    ]


@pytest.mark.parametrize(
    ("wait", "problem"),
    [("61s", "longer than the maximum of 60s"), ("soon", "'soon'"), ("0s", "'0s'"), (2, "2")],
)
async def test_an_impossible_wait_is_refused_before_anything_is_published(
    store: FeatureStore, gate: Gate, wait: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await store.publish("buy", "u1", wait=wait)
    assert await backlog(store) == 0


async def test_members_of_windows_show_the_contribution_after_the_wait(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", window=["1h"], aggregate=["count", "sum"])
    async def spent(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    async with working(store):
        for number in range(1, 6):
            await store.publish("buy", "u1", {"amount": 2.0}, wait=PATIENT)
            assert await store.get_feature("spent_sum_1h", "u1") == 2.0 * number


async def test_documents_of_handlers_are_found_after_the_wait(
    store: FeatureStore, user: type
) -> None:
    notes = Index(store, "notes")

    @feature(entity=user, trigger="note", max_retries=0)
    async def noted(user_id: str, event: ServiceEvent) -> None:
        await store.index(notes, event.payload["name"], event.payload["text"])

    async with working(store):
        for name in ("heron", "otter", "badger"):
            published = await store.publish(
                "note", "u1", {"name": name, "text": f"a {name} was seen"}, wait=PATIENT
            )
            assert published.visible
            found = await store.search(notes, name, mode="text")
            assert [chunk.document for chunk in found] == [name]


async def test_events_that_a_handler_publishes_are_not_waited_for(
    store: FeatureStore, user: type, gate: Gate
) -> None:
    @feature(entity=user, trigger="order", default=0, max_retries=0)
    async def ordered(user_id: str, event: ServiceEvent) -> int:
        await store.publish("buy", user_id)
        return 1

    gate.is_open.clear()
    async with working(store):
        assert (await store.publish("order", "u1", wait=PATIENT)).visible
        gate.is_open.set()


async def test_every_group_whose_workers_run_the_event_is_waited_for(
    store: FeatureStore, gate: Gate, settings: Settings, clock: ManualClock
) -> None:
    own = settings.replace(worker={"consumer_group": "reports"})
    reports = FeatureStore(settings=own, clock=clock)

    @entity(reports)
    class User:
        user_id: str

    held = asyncio.Event()

    @feature(entity=User, trigger="buy", default=0)
    async def reported(user_id: str, event: ServiceEvent) -> int:
        await held.wait()
        return 1

    async with reports:
        async with working(store, reports):
            event = await store.publish("buy", "u1", wait=BRIEF)
            assert not event.visible
            held.set()
            assert (await store.publish("buy", "u1", wait=PATIENT)).visible
            assert await reports.get_feature("reported", "u1") == 1
        async with working(store):
            # The other group has no workers now, so nothing of it can become visible.
            await until(lambda: is_visible(store))


async def is_visible(store: FeatureStore) -> bool:
    return (await store.publish("buy", "u1", wait="1s")).visible


async def test_a_caller_who_goes_away_ends_the_wait_and_not_the_publishing(
    store: FeatureStore, gate: Gate
) -> None:
    publishing = asyncio.create_task(store.publish("buy", "u1", wait=PATIENT))
    await asyncio.sleep(0)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    await until(lambda: has_backlog(store))


async def test_stopping_ends_all_waits_at_once(store: FeatureStore, gate: Gate) -> None:
    publishing = asyncio.create_task(store.publish("buy", "u1", wait=PATIENT))
    waits = runtime_of(store).publisher.waits
    await until(lambda: bool(waits._deadlines))  # noqa: SLF001 - nothing else shows it
    waits.stop()
    assert (await publishing).problem.startswith("the server is stopping")


def test_the_blocking_form_waits_too(settings: Settings) -> None:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    declare(store, User)
    event = store.sync.publish("buy", "u1", wait=BRIEF)
    assert isinstance(event, PublishedEvent)
    assert event.problem.startswith("no worker is running")
    result = store.sync.bus.publish(ServiceEvent("look", "u1"), wait=BRIEF)
    assert result.visible
    store.sync.close()
