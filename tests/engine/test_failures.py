"""A handler that fails is retried; then its event becomes a dead letter that can be redriven."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import UnknownDeadLetterError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, past

pytestmark = pytest.mark.both_environments


async def test_one_features_failure_does_not_undo_anothers(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    async def before(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="buy", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("before", user_id, 99)
        raise ValueError("no")

    @feature(entity=user, trigger="buy")
    async def afterwards(user_id: str, event: ServiceEvent) -> int:
        return 2

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_features(["before", "broken", "afterwards"], ["u1"]) == {
        "u1": {"before": 1, "broken": None, "afterwards": 2}
    }
    assert [letter.feature for letter in await store.dead_letters.list()] == ["broken"]


async def test_one_events_failure_does_not_stop_the_next_ones(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def bought(user_id: str, event: ServiceEvent) -> list[int]:
        if event.payload["number"] == 1:
            raise ValueError("not this one")
        before = await store.get_feature("bought", user_id) or []
        return [*before, event.payload["number"]]

    for number in range(4):
        await store.publish("buy", "u1", {"number": number})
    await store.drain()
    assert await store.get_feature("bought", "u1") == [0, 2, 3]
    (letter,) = await store.dead_letters.list()
    assert letter.event.payload == {"number": 1}


async def test_a_failing_handler_is_retried_with_growing_pauses(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    runs: list[float] = []

    @feature(entity=user, trigger="buy", max_retries=4)
    async def bought(user_id: str, event: ServiceEvent) -> int:
        runs.append(clock.now().timestamp())
        if len(runs) < 5:
            raise ConnectionError("try later")
        return len(runs)

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_feature("bought", "u1") == 5
    assert await store.dead_letters.list() == []
    pauses = [later - earlier for earlier, later in itertools.pairwise(runs)]
    for attempt, pause in enumerate(pauses):
        assert 0.5 * 0.1 * 2**attempt <= pause <= 1.5 * 0.1 * 2**attempt


async def test_a_retried_handler_starts_from_the_state_before_it_failed(
    store: FeatureStore, user: type
) -> None:
    runs = 0

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        before = await store.get_feature("total", user_id) or 0
        await store.set_feature("total", user_id, before + 10)
        if runs < 3:
            raise ValueError("after a write")
        return int(await store.get_feature("total", user_id))

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_feature("total", "u1") == 10
    assert await past(store, "total") == [10]


@pytest.mark.parametrize("max_retries", [0, 1, 5])
async def test_a_handler_runs_once_and_then_max_retries_times(
    store: FeatureStore, user: type, max_retries: int
) -> None:
    runs = 0

    @feature(entity=user, trigger="buy", max_retries=max_retries)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        raise ValueError("never")

    await store.publish("buy", "u1")
    await store.drain()
    assert runs == 1 + max_retries
    (letter,) = await store.dead_letters.list()
    assert letter.attempts == 1 + max_retries


async def test_max_retries_defaults_to_three(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("never")

    await store.publish("buy", "u1")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert letter.attempts == 4


async def test_a_dead_letter_holds_the_event_the_feature_the_error_and_the_times(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", max_retries=2)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise LookupError(f"no price for {event.payload['item']}")

    began = clock.now()
    event = await store.publish("buy", "u1", {"item": "tea"}, event_id="e1")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert letter.event == event
    assert letter.feature == "broken"
    assert letter.error == "LookupError: no price for tea"
    assert "test_failures.py" in letter.traceback
    assert "no price for tea" in letter.traceback
    assert letter.attempts == 3
    assert letter.position
    assert began == letter.first_failed_at < letter.dead_at == clock.now()


async def test_a_value_that_does_not_fit_its_feature_is_a_failure_with_the_features_name(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def price(user_id: str, event: ServiceEvent) -> float:
        return event.payload["price"]  # type: ignore[no-any-return]

    await store.publish("buy", "u1", {"price": "12"})
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert letter.error.startswith("FeatureValueError: feature 'price' cannot store '12' as float")
    assert letter.traceback == f"headwater.errors.{letter.error}\n"


async def test_the_traceback_of_a_sync_handler_begins_at_its_own_line(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    def broken(user_id: str, event: ServiceEvent) -> int:
        raise LookupError("no price")

    await store.publish("buy", "u1")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    head, first, *_ = letter.traceback.splitlines()
    assert head.startswith("Traceback")
    assert f'"{__file__}"' in first


async def test_redrive_runs_only_the_failed_feature(store: FeatureStore, user: type) -> None:
    mended = False
    runs: list[str] = []

    @feature(entity=user, trigger="buy")
    async def fine(user_id: str, event: ServiceEvent) -> int:
        runs.append("fine")
        return 1

    @feature(entity=user, trigger="buy", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> str:
        runs.append("broken")
        if not mended:
            raise ValueError("no")
        return event.event_id

    await store.publish("buy", "u1", event_id="e1")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    mended = True
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    assert runs == ["fine", "broken", "broken"]
    assert await store.get_feature("broken", "u1") == f"redrive:{letter.id}:e1"
    assert await store.dead_letters.list() == []


async def test_a_redriven_event_that_fails_again_is_a_dead_letter_again(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("no")

    await store.publish("buy", "u1")
    await store.drain()
    (first,) = await store.dead_letters.list()
    await store.dead_letters.redrive(first.id)
    await store.drain()
    (second,) = await store.dead_letters.list()
    assert second.id != first.id
    assert second.event.payload == first.event.payload
    with pytest.raises(UnknownDeadLetterError, match="dlq list"):
        await store.dead_letters.redrive(first.id)


async def test_a_handler_that_runs_too_long_fails_and_is_retried(
    settings: Settings, store: FeatureStore, user: type, clock: ManualClock
) -> None:
    runs = 0

    @feature(entity=user, trigger="buy", max_retries=1)
    async def slow(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        await asyncio.sleep(60)
        return 1

    @feature(entity=user, trigger="buy")
    async def quick(user_id: str, event: ServiceEvent) -> int:
        return 2

    await runtime_of(store).rebind(settings.replace(worker={"handler_timeout": 0.05}), clock)
    await store.publish("buy", "u1")
    await store.drain()
    assert runs == 2
    assert await store.get_feature("quick", "u1") == 2
    (letter,) = await store.dead_letters.list()
    assert letter.error == (
        "HandlerTimeoutError: feature 'slow' failed for 'u1': it timed out after 0.05 s"
    )


async def test_a_time_out_inside_a_handler_is_the_handlers_own(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def slow(user_id: str, event: ServiceEvent) -> int:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(60)
        return 1

    await store.publish("buy", "u1")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert letter.error.startswith("TimeoutError")


@pytest.mark.parametrize("ending", [asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_cancellation_or_exit_that_a_handler_raises_is_its_failure_not_the_workers_end(
    store: FeatureStore, user: type, ending: type[BaseException], is_async: bool
) -> None:
    def run(user_id: str, event: ServiceEvent) -> int:
        if user_id == "u1":
            raise ending
        return 1

    async def run_async(user_id: str, event: ServiceEvent) -> int:
        return run(user_id, event)

    feature(entity=user, name="gives_up", trigger="buy", max_retries=0)(
        run_async if is_async else run
    )

    await store.publish("buy", "u1")
    await store.publish("buy", "u2")
    await store.drain()
    assert await store.get_feature("gives_up", "u2") == 1
    assert [letter.event.entity_id for letter in await store.dead_letters.list()] == ["u1"]


async def test_an_id_that_is_not_of_the_entitys_type_is_a_dead_letter(
    store: FeatureStore,
) -> None:
    @entity(store)
    class Order:
        order_id: int

    @feature(entity=Order, trigger="paid", max_retries=0)
    async def paid(order_id: int, event: ServiceEvent) -> bool:
        return True

    await store.publish("paid", "not a number")
    await store.publish("paid", "7")
    await store.drain()
    assert await store.get_feature("paid", "7") is True
    assert len(await store.dead_letters.list()) == 1
    assert await backlog(store) == 0


async def test_late_events_do_not_turn_time_back(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("total", user_id) or 0) + int(event.payload["amount"])

    noon = clock.now()
    await store.publish("buy", "u1", {"amount": 1}, timestamp=noon)
    await store.publish("buy", "u1", {"amount": 10}, timestamp=noon - timedelta(hours=1))
    clock.advance("1m")
    await store.drain()
    (row,) = await store.get_feature_values(["total"], ["u1"])
    assert row["total"].value == 11
    assert row["total"].as_of == noon


async def test_a_feature_ordered_by_event_time_keeps_a_late_result_in_history_only(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="moved", order="event_time")
    async def city(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["city"])

    noon = clock.now()
    await store.publish("moved", "u1", {"city": "Rome"}, timestamp=noon - timedelta(hours=2))
    await store.publish("moved", "u1", {"city": "Paris"}, timestamp=noon)
    await store.publish("moved", "u1", {"city": "Oslo"}, timestamp=noon - timedelta(hours=1))
    await store.drain()
    (row,) = await store.get_feature_values(["city"], ["u1"])
    assert (row["city"].value, row["city"].as_of) == ("Paris", noon)
    assert await past(store, "city") == ["Rome", "Oslo", "Paris"]


@pytest.mark.both_environments
@pytest.mark.parametrize("partial", [False, True])
async def test_no_id_and_no_filter_settle_no_dead_letter(
    store: FeatureStore, user: type, *, partial: bool
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def fails(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("no")

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.dead_letters.discard(partial=partial) == []
    assert await store.dead_letters.redrive(partial=partial) == []
    assert len(await store.dead_letters.list()) == 1
