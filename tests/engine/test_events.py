"""Every event takes effect once, in order per entity, and handlers see their own writes."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import numpy
import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import ClosedError, EventConflict, EventConflictError, EventError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, backlog, past, query, records, until

pytestmark = pytest.mark.both_environments


def declare_journal(store: FeatureStore) -> None:
    """A user's journal: the numbers of its events, in the order in which they took effect."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="note")
    async def journal(user_id: str, event: ServiceEvent) -> list[int]:
        before = await store.get_feature("journal", user_id) or []
        # Others get their chance to disturb.
        await asyncio.sleep(0)
        return [*before, event.payload["number"]]


async def test_events_of_one_entity_take_effect_in_order(store: FeatureStore) -> None:
    declare_journal(store)
    for number in range(30):
        for entity_id in ("u1", "u2", "u3"):
            await store.publish("note", entity_id, {"number": number})
    await store.drain()
    journals = await store.get_features(["journal"], ["u1", "u2", "u3"])
    assert all(row["journal"] == list(range(30)) for row in journals.values())


async def test_an_event_takes_effect_exactly_once_after_many_workers(
    store: FeatureStore,
) -> None:
    declare_journal(store)
    await store.publish("note", "u1", {"number": 1})
    for _ in range(3):
        await store.drain()
    assert await store.get_feature("journal", "u1") == [1]
    assert await past(store, "journal") == [[1]]


async def test_an_event_published_before_the_store_was_closed_takes_effect_after_it_is_reopened(
    store: FeatureStore,
) -> None:
    declare_journal(store)
    await store.publish("note", "u1", {"number": 1})
    await store.close()
    await store.drain()
    assert await store.get_feature("journal", "u1") == [1]


async def test_an_event_id_that_is_published_again_takes_effect_once(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_journal(store)
    await store.publish("note", "u1", {"number": 1}, event_id="e1")
    clock.advance("1s")
    await store.publish("note", "u1", {"number": 1}, event_id="e1")
    again = await store.bus.publish(ServiceEvent("note", "u1", {"number": 1}, event_id="e1"))
    await store.drain()
    assert again.duplicate
    assert await store.get_feature("journal", "u1") == [1]


async def test_handlers_see_the_time_of_an_event_in_utc(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="note")
    def noted(user_id: str, event: ServiceEvent) -> tuple[str, int]:
        return event.timestamp.isoformat(), event.timestamp.day

    local = datetime(2026, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    event = await store.publish("note", "u1", timestamp=local)
    assert event.timestamp == local
    await store.drain()
    assert await store.get_feature("noted", "u1") == ("2026-01-02T04:30:00+00:00", 2)


async def test_one_event_id_for_40_entities_is_40_events(store: FeatureStore) -> None:
    declare_journal(store)
    for number in range(40):
        await store.publish("note", f"u{number}", {"number": number}, event_id="e1")
    await store.drain()
    journals = [await store.get_feature("journal", f"u{number}") for number in range(40)]
    assert journals == [[number] for number in range(40)]


async def test_the_same_event_id_with_other_content_is_an_error_that_names_the_difference(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_journal(store)
    first = await store.publish("note", "u1", {"number": 1}, event_id="e1")
    with pytest.raises(EventConflictError, match=r"'e1' of entity 'u1'.*\(payload differs\)"):
        await store.publish("note", "u1", {"number": 2}, event_id="e1")
    fresh = ServiceEvent("note", "u1", {"number": 3}, clock.now())
    renamed = msgspec.structs.replace(first, event_type="memo")
    with pytest.raises(EventConflictError, match="2 of 3 events") as caught:
        await store.bus.publish_many([first, renamed, fresh])
    assert caught.value.conflicts == [
        EventConflict(1, "u1", "e1", "event_type was 'note', is 'memo'")
    ]
    await store.drain()
    assert await store.get_feature("journal", "u1") == [1, 3]


async def test_two_times_with_one_event_id_are_a_conflict_also_with_fold(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_journal(store)
    at = clock.now().replace(fold=1)
    await store.publish("note", "u1", {"number": 1}, timestamp=at, event_id="e1")
    with pytest.raises(EventConflictError, match="timestamp was"):
        await store.publish(
            "note", "u1", {"number": 1}, timestamp=at - timedelta(seconds=1), event_id="e1"
        )


async def test_a_published_event_has_a_plain_time_and_nothing_but_what_is_stored(
    store: FeatureStore, clock: ManualClock
) -> None:
    event = await store.publish("note", "u1", {"number": 1}, event_id="e1")
    assert event.timestamp.fold == 0
    clock.advance(timedelta(minutes=1))
    assert (await store.publish("note", "u1", {"number": 1}, event_id="e1")).event_id == "e1"
    (logged,) = await store.bus.list(event_type="note")
    assert msgspec.to_builtins(logged.event) == msgspec.to_builtins(event)


@pytest.mark.parametrize("payload", [{"a": "x\0y"}, {"a\0": 1}, {"a": [{"b": "\\\0"}]}])
async def test_the_character_that_postgres_cannot_hold_is_refused_where_it_enters(
    store: FeatureStore, payload: dict[str, Any]
) -> None:
    with pytest.raises(EventError, match=r"payload cannot be stored: it contains .* U\+0000"):
        await store.publish("note", "u1", payload)
    assert await backlog(store) == 0


async def test_what_a_payload_contains_comes_back(store: FeatureStore) -> None:
    payload = {"a": "\\u0000 \x01 \x7f \ufffd \ufeff", "\\u0000": ["\\\\u0000", "\u2028"]}
    await store.publish("note", "u1", payload)
    (logged,) = await store.bus.list()
    assert logged.event.payload == payload
    ((shown,),) = await query(store, "SELECT payload FROM events")
    assert msgspec.json.decode(shown) == payload


async def test_the_order_of_a_payloads_keys_is_not_its_content(store: FeatureStore) -> None:
    await store.publish("note", "u1", {"a": 1, "b": {"c": 2, "d": 3}}, event_id="e1")
    again = ServiceEvent("note", "u1", {"b": {"d": 3, "c": 2}, "a": 1}, event_id="e1")
    assert (await store.bus.publish(again)).duplicate


async def test_a_payload_of_numpy_scalars_repeats_one_of_python_numbers(
    store: FeatureStore,
) -> None:
    await store.publish("note", "u1", {"a": numpy.int64(1)}, event_id="e1")
    assert (await store.bus.publish(ServiceEvent("note", "u1", {"a": 1}, event_id="e1"))).duplicate


async def test_event_ids_of_redriven_dead_letters_are_reserved(store: FeatureStore) -> None:
    with pytest.raises(EventError, match=r"'redrive:7' is reserved.*choose another id"):
        await store.publish("note", "u1", {"number": 1}, event_id="redrive:7")
    assert await backlog(store) == 0


async def test_an_event_id_is_forgotten_when_the_dedup_window_is_over(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_journal(store)
    await store.publish("note", "u1", {"number": 1}, event_id="e1")
    clock.advance("25h")
    await store.publish("note", "u1", {"number": 2}, event_id="e1")
    await store.drain()
    assert await store.get_feature("journal", "u1") == [1, 2]


async def test_a_batch_of_events_with_an_invalid_one_is_not_published_at_all(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_journal(store)
    good = ServiceEvent("note", "u1", {"number": 1}, clock.now())
    for bad in (
        ServiceEvent("note", "u1", {"number": object()}, clock.now()),
        ServiceEvent("note", "u1", {"number": float("nan")}, clock.now()),
        ServiceEvent("headwater.refresh", "u1", {}, clock.now()),
        ServiceEvent("note", "u1", {}, clock.now() + timedelta(days=365)),
    ):
        with pytest.raises(EventError, match=r"^event 1: "):
            await store.bus.publish_many([good, bad])
    assert await backlog(store) == 0


async def test_an_event_that_nothing_triggers_on_is_acknowledged(store: FeatureStore) -> None:
    declare_journal(store)
    await store.publish("unheard", "u1")
    await store.drain()
    assert await backlog(store) == 0
    assert await store.dead_letters.list() == []


async def test_a_handler_sees_its_own_uncommitted_writes(store: FeatureStore, user: type) -> None:
    seen: list[object] = []

    @feature(entity=user, trigger="note")
    async def first(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("first", user_id, 1)
        seen.append(await store.get_feature("first", user_id))
        await store.set_feature("second", user_id, 2)
        seen.append(await store.get_features(["first", "second"], [user_id]))
        return 3

    @feature(entity=user, trigger="note")
    async def second(user_id: str, event: ServiceEvent) -> int:
        seen.append(await store.get_feature("first", user_id))
        return 4

    await store.publish("note", "u1")
    await store.drain()
    assert seen == [1, {"u1": {"first": 1, "second": 2}}, 3]
    assert await store.get_features(["first", "second"], ["u1"]) == {
        "u1": {"first": 3, "second": 4}
    }


async def test_writes_of_a_handler_are_invisible_to_others_until_committed(
    store: FeatureStore, user: type
) -> None:
    written, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=user, trigger="note")
    async def total(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("total", user_id, 1)
        written.set()
        await go_on.wait()
        return 2

    @feature(entity=user)
    async def doubled(user_id: str) -> int:
        return 2 * (await store.get_feature("total", user_id) or 0)

    await store.publish("note", "u1")
    draining = asyncio.create_task(store.drain())
    await written.wait()
    assert await store.get_features(["total", "doubled"], ["u1"]) == {
        "u1": {"total": None, "doubled": 0}
    }
    go_on.set()
    await draining
    assert await store.get_feature("doubled", "u1") == 4


async def test_a_computation_inside_a_handler_is_not_shared_with_readers_outside(
    store: FeatureStore, user: type
) -> None:
    computing, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=user, trigger="note")
    async def total(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("total", user_id, 1)
        return int(await store.get_feature("slow", user_id))

    @feature(entity=user)
    async def slow(user_id: str) -> int:
        before = await store.get_feature("total", user_id) or 0
        if before:
            computing.set()
            await go_on.wait()
        return int(before)

    await store.publish("note", "u1")
    draining = asyncio.create_task(store.drain())
    await computing.wait()
    # Less than the timeout of the handler, which would end the wait as well.
    async with asyncio.timeout(PATIENCE_SECONDS / 2):
        assert await store.get_feature("slow", "u1") == 0
    go_on.set()
    await draining
    assert await store.get_feature("total", "u1") == 1


async def test_a_handler_may_set_features_of_other_entities(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Team:
        team_id: str

    @feature(entity=Team, trigger="reset")
    async def team_total(team_id: str, event: ServiceEvent) -> int:
        return 0

    @feature(entity=User, trigger="score")
    async def best(user_id: str, event: ServiceEvent) -> int:
        team = event.payload["team"]
        total = await store.get_feature("team_total", team) or 0
        await asyncio.sleep(0)
        await store.set_feature("team_total", team, total + event.payload["points"])
        return max(int(await store.get_feature("best", user_id) or 0), int(event.payload["points"]))

    for number in range(60):
        await store.publish("score", f"u{number % 20}", {"team": f"t{number % 2}", "points": 1})
    await store.drain()
    totals = await store.get_features(["team_total"], ["t0", "t1"])
    assert totals == {"t0": {"team_total": 30}, "t1": {"team_total": 30}}


async def test_a_value_set_from_outside_while_a_batch_runs_is_not_lost(
    store: FeatureStore, user: type
) -> None:
    read, is_set = asyncio.Event(), asyncio.Event()
    runs = 0

    @feature(entity=user, trigger="note")
    async def total(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        before = await store.get_feature("total", user_id) or 0
        read.set()
        await is_set.wait()
        return int(before) + 1

    await store.publish("note", "u1")
    draining = asyncio.create_task(store.drain())
    await read.wait()
    await store.set_feature("total", "u1", 100)
    is_set.set()
    await draining
    assert await store.get_feature("total", "u1") == 101
    assert runs == 2


async def test_a_task_that_a_handler_does_not_await_cannot_write_afterwards(
    store: FeatureStore, user: type
) -> None:
    stray: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()

    @feature(entity=user, trigger="note")
    async def total(user_id: str, event: ServiceEvent) -> int:
        async def write_later() -> None:
            await go_on.wait()
            await store.set_feature("total", user_id, 99)

        stray.append(asyncio.create_task(write_later()))
        return 1

    await store.publish("note", "u1")
    await store.drain()
    go_on.set()
    with pytest.raises(ClosedError, match="await the tasks that it starts"):
        await stray[0]
    assert await store.get_feature("total", "u1") == 1


async def test_different_entities_run_at_the_same_time(store: FeatureStore, user: type) -> None:
    everyone = asyncio.Barrier(20)

    @feature(entity=user, trigger="meet")
    async def met(user_id: str, event: ServiceEvent) -> bool:
        await everyone.wait()
        return True

    for number in range(20):
        await store.publish("meet", f"u{number}")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await store.drain()
    assert await store.get_feature("met", "u19") is True


async def test_two_workers_lose_no_update_and_reorder_none(
    settings: Settings, clock: ManualClock
) -> None:
    stores = [FeatureStore(settings=settings, clock=clock) for _ in range(2)]
    for store in stores:
        declare_journal(store)
    workers = [Worker(store) for store in stores]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    ids = [f"u{number}" for number in range(12)]
    for number in range(40):
        await stores[number % 2].bus.publish_many(
            [ServiceEvent("note", entity_id, {"number": number}, clock.now()) for entity_id in ids]
        )
    await until(lambda: _all_done(stores[0]))
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    journals = await stores[1].get_features(["journal"], ids)
    assert all(row["journal"] == list(range(40)) for row in journals.values())
    for store in stores:
        await store.close()


async def _all_done(store: FeatureStore) -> bool:
    return await backlog(store) == 0


async def test_a_running_worker_handles_an_event_as_soon_as_it_is_published(
    store: FeatureStore,
) -> None:
    declare_journal(store)
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    for number in range(20):
        await store.publish("note", "u1", {"number": number})
        await until(lambda: _all_done(store))
    worker.stop()
    await running
    assert await store.get_feature("journal", "u1") == list(range(20))


async def test_a_stopped_worker_finishes_running_events(store: FeatureStore, user: type) -> None:
    begun = asyncio.Event()

    @feature(entity=user, trigger="note")
    async def done(user_id: str, event: ServiceEvent) -> bool:
        begun.set()
        await asyncio.sleep(0.05)
        return True

    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await store.publish("note", "u1")
    await begun.wait()
    worker.stop()
    await running
    assert await store.get_feature("done", "u1") is True
    assert await backlog(store) == 0


async def test_entity_ids_come_to_functions_in_their_annotated_type(store: FeatureStore) -> None:
    @entity(store)
    class Order:
        order_id: int

    seen: list[object] = []

    @feature(entity=Order, trigger="paid")
    async def paid(order_id: int, event: ServiceEvent) -> bool:
        seen.append(order_id)
        return True

    await store.publish("paid", "17")
    await store.drain()
    assert seen == [17]
    assert await store.get_feature("paid", "17") is True


async def test_a_feature_for_its_effect_alone_returns_nothing(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="note")
    async def relay(user_id: str, event: ServiceEvent) -> None:
        await store.set_feature("heard", user_id, event.payload["number"])

    @feature(entity=user, trigger="other")
    async def heard(user_id: str, event: ServiceEvent) -> int:
        return 0

    await store.publish("note", "u1", {"number": 7})
    await store.drain()
    assert await store.get_feature("heard", "u1") == 7


async def test_a_store_that_was_closed_says_so(store: FeatureStore) -> None:
    declare_journal(store)
    engine = await runtime_of(store).open()
    await store.close()
    with pytest.raises(ClosedError, match="closed"):
        await engine.backends.online.get("User", ["u1"])
    with pytest.raises(ClosedError, match="closed"):
        await engine.backends.bus.publish([ServiceEvent("note", "u1")], dedup_window=None)


async def test_a_payload_that_json_would_change_is_refused(store: FeatureStore) -> None:
    for payload in ({1: 2}, {"at": (1, 2)}, {"nan": float("nan")}):
        with pytest.raises(EventError, match="payload cannot be stored"):
            await store.publish("buy", "u1", payload)  # type: ignore[arg-type]


async def test_an_invalid_event_is_refused(store: FeatureStore) -> None:
    event = ServiceEvent("note", "u1")
    with pytest.raises(EventError, match=r"payload is a mapping such as .* not \[1\]"):
        await store.publish("note", "u1", [1])  # type: ignore[call-overload]
    with pytest.raises(EventError, match=r"takes a list; pass \[event\]"):
        await store.bus.publish_many(event)  # type: ignore[arg-type]
    with pytest.raises(EventError, match=r"event 1: .* is not a ServiceEvent"):
        await store.bus.publish_many([event, {"event_type": "note"}])  # type: ignore[list-item]


async def test_a_payload_that_is_too_large_is_refused(store: FeatureStore) -> None:
    with pytest.raises(EventError, match="more than the maximum of 1048576"):
        await store.publish("buy", "u1", {"text": "x" * (1 << 20)})
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"in": deep}
    with pytest.raises(EventError, match="payload cannot be stored"):
        await store.publish("buy", "u1", deep)


@pytest.mark.both_environments
async def test_accepted_events_are_listed_newest_first(
    store: FeatureStore, clock: ManualClock
) -> None:
    for number in range(3):
        clock.advance("1m")
        await store.publish("note", "o'brien", {"n": number}, event_id=f"e{number}")
    await store.publish("note", "ada")
    logged = await store.bus.list(entity_id="o'brien", limit=2)
    assert [(each.event.event_id, each.event.payload) for each in logged] == [
        ("e2", {"n": 2}),
        ("e1", {"n": 1}),
    ]
    (oldest,) = await store.bus.list(event_type="note", before=logged[1].event.timestamp)
    assert oldest.event.event_id == "e0"
    assert await store.bus.list(event_id="e1") == [logged[1]]
    assert await store.bus.list(event_type="memo") == []


async def test_an_event_type_that_looks_misspelled_is_logged_once(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    @feature(entity=user, trigger="purchase")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    for event_type in ("purchas", "purchas", "purchase", "login"):
        await store.publish(event_type, "u1")
    hints = records(capsys.readouterr().err, "event type triggers no feature")
    assert [record["hint"] for record in hints] == [
        "no feature is triggered by 'purchas'; did you mean 'purchase'?"
    ]
