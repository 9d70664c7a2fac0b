"""A feature that cannot succeed costs its own events retries, and delays no other feature."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.clock import MICROSECOND, to_micros
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import metric, records

THRESHOLD = Settings().worker.breaker_threshold
BUDGET = timedelta(seconds=Settings().worker.retry_budget)


@pytest.fixture
async def one_lane(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> FeatureStore:
    """Return the store with one partition, whose entities run one after the other."""
    settings = settings.replace(partitions=1, worker={"concurrency": 1})
    await runtime_of(store).rebind(settings, clock)
    return store


def purchases(count: int) -> list[ServiceEvent]:
    """Return one event for each of many entities."""
    return [ServiceEvent("buy", f"u{number}") for number in range(count)]


@pytest.mark.both_environments
async def test_a_value_of_another_type_is_a_dead_letter_at_once(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", max_retries=3)
    async def price(user_id: str, event: ServiceEvent) -> float:
        return "12"  # type: ignore[return-value]

    @feature(entity=user, trigger="buy", max_retries=3)
    def other_price(user_id: str, event: ServiceEvent) -> None:
        store.sync.set_feature("price", user_id, "12")

    began = clock.now()
    await store.publish("buy", "u1")
    await store.drain()
    letters = await store.dead_letters.list()
    assert {letter.feature: letter.attempts for letter in letters} == {"price": 1, "other_price": 1}
    assert clock.now() == began


@pytest.mark.both_environments
async def test_an_unknown_name_is_a_dead_letter_at_once(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user)
    async def on_demand(user_id: str) -> float:
        return float(await store.get_feature("pric", user_id))

    @feature(entity=user, trigger="buy", max_retries=3)
    async def price(user_id: str, event: ServiceEvent) -> float:
        return float(await store.get_feature("pric", user_id))

    @feature(entity=user, trigger="buy", max_retries=3)
    async def through_another_feature(user_id: str, event: ServiceEvent) -> float:
        return float(await store.get_feature("on_demand", user_id))

    began = clock.now()
    await store.publish("buy", "u1")
    await store.drain()
    letters = await store.dead_letters.list()
    assert [letter.attempts for letter in letters] == [1, 1]
    assert all("did you mean 'price'" in letter.error for letter in letters)
    assert clock.now() == began


@pytest.mark.both_environments
async def test_an_impossible_id_is_a_dead_letter_at_once(
    store: FeatureStore, clock: ManualClock
) -> None:
    @entity(store)
    class Order:
        order_id: int

    @feature(entity=Order, trigger="paid", max_retries=3)
    async def paid(order_id: int, event: ServiceEvent) -> bool:
        return True

    began = clock.now()
    await store.publish("paid", "not a number")
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert letter.attempts == 1
    assert clock.now() == began


async def test_events_that_can_never_succeed_do_not_open_the_breaker(
    one_lane: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy", max_retries=3)
    async def refused(user_id: str, event: ServiceEvent) -> float:
        if user_id == "later":
            raise ConnectionError("try later")
        return "12"  # type: ignore[return-value]

    await one_lane.bus.publish_many([*purchases(THRESHOLD + 1), ServiceEvent("buy", "later")])
    await one_lane.drain()
    *letters, last = await one_lane.dead_letters.list()
    assert {letter.attempts for letter in letters} == {1}
    assert last.attempts == 4


@pytest.mark.both_environments
async def test_after_n_consecutive_failures_each_event_gets_one_attempt(
    one_lane: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = 0

    @feature(entity=user, trigger="buy")
    async def healthy(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="buy", max_retries=3)
    async def hopeless(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        raise ConnectionError("never")

    await one_lane.bus.publish_many(purchases(250))
    await one_lane.drain()
    assert runs == 4 * THRESHOLD + (250 - THRESHOLD)
    letters = await one_lane.dead_letters.list(limit=1_000)
    assert [letter.attempts for letter in letters].count(1) == 250 - THRESHOLD
    assert await one_lane.get_feature("healthy", "u249") == 1
    (opened,) = records(capsys.readouterr().err, "circuit breaker opened")
    assert (opened["feature"], opened["failures"]) == ("hopeless", THRESHOLD)
    assert metric("headwater_circuit_breaker_open", feature="hopeless") == 1
    await one_lane.close()
    assert metric("headwater_circuit_breaker_open", feature="hopeless") == 0


async def test_a_success_closes_the_breaker_and_later_failures_are_retried_again(
    one_lane: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    is_available = False

    @feature(entity=user, trigger="buy", max_retries=3)
    async def flaky(user_id: str, event: ServiceEvent) -> int:
        if not is_available:
            raise ConnectionError("try later")
        return 1

    await one_lane.bus.publish_many(purchases(THRESHOLD + 1))
    await one_lane.drain()
    *_, last = await one_lane.dead_letters.list()
    assert last.attempts == 1
    assert records(capsys.readouterr().err, "circuit breaker closed") == []
    is_available = True
    await one_lane.dead_letters.redrive(last.id)
    await one_lane.drain()
    (closed,) = records(capsys.readouterr().err, "circuit breaker closed")
    assert (closed["feature"], closed["failures"]) == ("flaky", THRESHOLD + 1)
    assert metric("headwater_circuit_breaker_open", feature="flaky") == 0
    is_available = False
    await one_lane.publish("buy", "after")
    await one_lane.drain()
    *_, last = await one_lane.dead_letters.list()
    assert last.attempts == 4


async def test_a_breaker_with_threshold_zero_never_opens(
    one_lane: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", max_retries=1)
    async def hopeless(user_id: str, event: ServiceEvent) -> int:
        raise ConnectionError("never")

    settings = one_lane.settings.replace(worker={"breaker_threshold": 0})
    await runtime_of(one_lane).rebind(settings, clock)
    await one_lane.bus.publish_many(purchases(2 * THRESHOLD))
    await one_lane.drain()
    assert {letter.attempts for letter in await one_lane.dead_letters.list()} == {2}


@pytest.mark.both_environments
async def test_one_events_retries_delay_the_rest_of_its_partition_by_at_most_the_retry_budget(
    one_lane: FeatureStore, user: type, clock: ManualClock
) -> None:
    handled_at = None

    @feature(entity=user, trigger="buy")
    async def healthy(user_id: str, event: ServiceEvent) -> int:
        nonlocal handled_at
        handled_at = clock.now()
        return 1

    @feature(entity=user, trigger="break", max_retries=20)
    async def hopeless(user_id: str, event: ServiceEvent) -> int:
        raise ConnectionError("never")

    began = clock.now()
    await one_lane.bus.publish_many([ServiceEvent("break", "u1"), ServiceEvent("buy", "u2")])
    await one_lane.drain()
    assert handled_at is not None
    assert handled_at - began <= BUDGET
    (letter,) = await one_lane.dead_letters.list()
    assert 1 < letter.attempts < 21


@pytest.mark.both_environments
async def test_the_run_time_of_retries_counts_so_they_end_one_run_after_the_budget_is_spent(
    one_lane: FeatureStore, user: type, clock: ManualClock
) -> None:
    run, handled_at = timedelta(seconds=4), None

    @feature(entity=user, trigger="buy")
    async def healthy(user_id: str, event: ServiceEvent) -> int:
        nonlocal handled_at
        handled_at = clock.now()
        return 1

    @feature(entity=user, trigger="break", max_retries=20)
    async def hopeless(user_id: str, event: ServiceEvent) -> int:
        clock.advance(run)
        raise ConnectionError("never")

    began = clock.now()
    await one_lane.bus.publish_many([ServiceEvent("break", "u1"), ServiceEvent("buy", "u2")])
    await one_lane.drain()
    assert handled_at is not None
    first_attempt, last_retry = run, run
    assert handled_at - began <= first_attempt + BUDGET + last_retry
    (letter,) = await one_lane.dead_letters.list()
    assert letter.attempts == 3
    assert letter.dead_at == handled_at


class SetBackClock(ManualClock):
    """A clock whose time of day can be set back."""

    def __init__(self) -> None:
        super().__init__()
        self.set_back_by = timedelta()

    def now(self) -> datetime:
        return super().now() - self.set_back_by

    def micros(self) -> int:
        return to_micros(self.now())


@pytest.mark.both_environments
async def test_a_clock_that_is_set_back_does_not_make_pauses_free(
    one_lane: FeatureStore, user: type
) -> None:
    clock = SetBackClock()

    @feature(entity=user, trigger="buy", max_retries=20)
    async def hopeless(user_id: str, event: ServiceEvent) -> int:
        clock.set_back_by = timedelta(hours=1)
        raise ConnectionError("never")

    await runtime_of(one_lane).rebind(one_lane.settings, clock)
    began = clock.monotonic()
    await one_lane.bus.publish_many(purchases(THRESHOLD - 1))
    await one_lane.drain()
    assert clock.monotonic() - began <= BUDGET // MICROSECOND
    assert len(await one_lane.dead_letters.list()) == THRESHOLD - 1


@pytest.mark.both_environments
async def test_an_entity_that_keeps_failing_delays_the_others_by_at_most_the_retry_budget(
    one_lane: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", max_retries=3)
    async def mostly_healthy(user_id: str, event: ServiceEvent) -> int:
        if user_id == "u1":
            raise ConnectionError("never for this one")
        return 1

    began = clock.now()
    for number in range(30):
        failing = [ServiceEvent("buy", "u1") for _ in range(10)]
        await one_lane.bus.publish_many([*failing, ServiceEvent("buy", f"v{number}")])
    await one_lane.drain()
    assert await one_lane.get_feature("mostly_healthy", "v29") == 1
    assert clock.now() - began <= BUDGET
