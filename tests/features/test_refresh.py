"""Scheduled features: ticks, and functions that run at them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.logging import Outage
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.periodic_work import Scheduler
from headwater.errors import BackendUnavailableError
from headwater.features.refresh_outcomes import RefreshOutcome, RefreshOutcomes
from headwater.features.schedule import next_due
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, backlog, metric, past, query, records, until
from tests.features.known_users import declare_seen, know

pytestmark = pytest.mark.both_environments


async def test_a_materialized_feature_is_recomputed_for_every_known_entity_at_each_tick(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1", "u2", "u3")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    runs.clear()
    clock.advance("5m")
    await store.drain()
    assert sorted(runs) == ["u1", "u2", "u3"]
    await store.drain()
    assert len(runs) == 3
    values = await store.get_features(["score"], ["u1", "u2", "u3"])
    assert sorted(row["score"] for row in values.values()) == [1, 2, 3]


async def test_a_feature_that_is_not_materialized_is_computed_when_first_read_and_kept_fresh_then(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m")
    def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1", "u2")
    await store.drain()
    assert runs == []
    assert await store.get_feature("score", "u1") == 1
    assert await store.get_feature("score", "u1") == 1
    clock.advance("5m")
    await store.drain()
    assert runs == ["u1", "u1"]
    (row,) = await store.get_feature_values(["score"], ["u1"])
    assert (row["score"].value, row["score"].source) == (2, "online")
    assert set(await past(store, "score")) == {1, 2}


async def test_a_tick_reaches_more_entities_than_fit_in_one_portion(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return 1

    await runtime_of(store).rebind(
        settings.replace(home=settings.home + "/one", partitions=1), clock
    )
    ids = [f"u{number:04}" for number in range(1_234)]
    await store.bus.publish_many(
        [ServiceEvent("seen", entity_id, {}, clock.now()) for entity_id in ids], dedup=False
    )
    await store.drain()
    runs.clear()
    clock.advance("5m")
    await store.drain()
    assert sorted(runs) == ids
    values = await store.get_features(["score"], ids)
    assert all(row["score"] == 1 for row in values.values())


async def test_a_refresh_that_fails_keeps_the_old_value_logs_counts_and_tries_again(
    store: FeatureStore, user: type, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    declare_seen(user)
    broken = False

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        if broken and user_id == "u1":
            raise ConnectionError("no answer")
        return clock.now().minute

    await know(store, "u1", "u2")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    before = await store.get_features(["score"], ["u1", "u2"])
    failures = metric("headwater_refreshes_total", feature="score", outcome="failed")
    broken = True
    clock.advance("5m")
    await store.drain()
    after = await store.get_features(["score"], ["u1", "u2"])
    assert after["u1"] == before["u1"] != {"score": None}
    assert after["u2"] != before["u2"]
    assert metric("headwater_refreshes_total", feature="score", outcome="failed") > failures
    (record,) = records(capsys.readouterr().err, "refresh failed")
    assert (record["level"], record["feature"], record["entity_id"], record["error"]) == (
        "warning",
        "score",
        "u1",
        "ConnectionError: no answer",
    )
    broken = False
    clock.advance("5m")
    await store.drain()
    assert await store.get_feature("score", "u1") == clock.now().minute


async def test_ticks_that_were_missed_coalesce_into_one_and_are_counted(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs = 0

    @feature(entity=user, refresh="5m", materialize=True)
    async def coalesced(user_id: str) -> int:
        nonlocal runs
        runs += 1
        return runs

    await know(store, "u1")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    runs = 0
    missed = metric("headwater_ticks_missed_total", feature="coalesced")
    clock.advance("1h")
    await store.drain()
    assert runs == 1
    assert metric("headwater_ticks_missed_total", feature="coalesced") == missed + 11


async def test_several_schedulers_make_one_run_per_tick(
    settings: Settings, clock: ManualClock
) -> None:
    runs: list[str] = []
    stores = [FeatureStore(settings=settings, clock=clock) for _ in range(3)]
    for store in stores:

        @entity(store)
        class User:
            user_id: str

        declare_seen(User)

        @feature(entity=User, refresh="5m", materialize=True)
        async def score(user_id: str) -> int:
            runs.append(user_id)
            return 1

    await know(stores[0], "u1", "u2")
    await stores[0].drain()
    runs.clear()
    clock.advance("5m")
    workers = [Worker(store) for store in stores]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: len(runs) >= 2)
    await until(lambda: _idle(stores[0]))
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert sorted(runs) == ["u1", "u2"]
    for store in stores:
        await store.close()


async def _idle(store: FeatureStore) -> bool:
    return await backlog(store) == 0


async def test_a_running_worker_ticks_by_itself(settings: Settings) -> None:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    declare_seen(User)
    runs = 0

    @feature(entity=User, refresh="100ms", materialize=True)
    async def score(user_id: str) -> int:
        nonlocal runs
        runs += 1
        return runs

    await know(store, "u1")
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await until(lambda: runs >= 3)
    worker.stop()
    await running
    assert await store.get_feature("score", "u1") == runs
    await store.close()


async def test_a_handler_and_a_refresh_of_one_entity_lose_no_update(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        before = await store.get_feature("total", user_id) or 0
        await asyncio.sleep(0)
        return int(before) + 1

    @feature(entity=user, refresh="5m", materialize=True)
    async def doubled(user_id: str) -> int:
        before = await store.get_feature("total", user_id) or 0
        await asyncio.sleep(0)
        return 2 * int(before)

    await store.publish("buy", "u1")
    await store.drain()
    for _ in range(5):
        clock.advance("5m")
        await store.publish("buy", "u1")
        await store.drain()
    assert await store.get_feature("total", "u1") == 6
    clock.advance("5m")
    await store.drain()
    assert await store.get_feature("doubled", "u1") == 12


async def test_ticks_are_no_events_of_the_users_log(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        return 1

    await know(store, "u1")
    await store.drain()
    clock.advance("5m")
    await store.drain()
    assert await query(store, "SELECT event_type FROM events") == [("seen",)]


async def test_a_tick_that_is_read_late_is_run(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="1s", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1")
    await store.drain()
    runs.clear()
    engine = await runtime_of(store).open()
    for _ in range(3):
        clock.advance("1s")
        await Scheduler(engine, Outage("events")).tick(engine.clock.now())
    clock.advance("1h")
    skipped = metric("headwater_refreshes_total", feature="score", outcome="skipped")
    await store.drain()
    # Four ticks wait together by now, three late ones and that of the drain: the last one is run.
    assert runs == ["u1"]
    assert metric("headwater_refreshes_total", feature="score", outcome="skipped") > skipped


async def test_a_tick_is_passed_over_while_an_earlier_run_is_on_its_way(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="1s", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        clock.advance("10ms")
        return len(runs)

    await runtime_of(store).rebind(
        settings.replace(home=settings.home + "/one", partitions=1), clock
    )
    ids = [f"u{number:04}" for number in range(1_200)]
    await store.bus.publish_many(
        [ServiceEvent("seen", entity_id, {}, clock.now()) for entity_id in ids], dedup=False
    )
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(runs) >= 2 * len(ids))
    worker.stop()
    await running
    # Each run takes twelve intervals; the next one begins only after it has ended.
    assert runs[: len(ids)] == ids
    assert runs[len(ids) : 2 * len(ids)] == ids


async def test_a_timer_that_fires_early_loses_no_tick(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, refresh="1h", materialize=True)
    async def score(user_id: str) -> int:
        return 1

    engine = await runtime_of(store).open()
    scheduler = Scheduler(engine, Outage("events"))
    clock.advance(next_due(engine.registry.feature("score"), clock.now()) - clock.now())
    early = clock.now() - timedelta(microseconds=100)
    assert scheduler.wait(early) <= 0


async def test_a_schedule_can_be_run_now_and_goes_on_afterwards(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="5m", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    await know(store, "u1")
    await store.drain()
    before = len(runs)
    clock.advance("1m")
    await store.admin.refresh("score")
    await store.drain()
    assert len(runs) == before + 1
    clock.advance("5m")
    await store.drain()
    assert len(runs) == before + 2


async def test_outcomes_that_cannot_be_stored_are_logged_once_and_the_next_one_is_stored(
    store: FeatureStore,
    user: type,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare_seen(user)

    @feature(entity=user, refresh="1m", materialize=True)
    async def score(user_id: str) -> int:
        return 1

    await know(store, "u1")
    await store.drain()

    async def fail(outcomes: RefreshOutcomes, name: str) -> RefreshOutcome:
        raise BackendUnavailableError("the server is away")

    with monkeypatch.context() as patched:
        patched.setattr(RefreshOutcomes, "_read_one", fail)
        for _ in range(3):
            clock.advance("1m")
            await store.drain()
    assert len(records(capsys.readouterr().err, "outcome of a refresh not stored")) == 1
    clock.advance("1m")
    await store.drain()
    assert len(records(capsys.readouterr().err, "back after an outage")) == 1
    outcomes = RefreshOutcomes((await runtime_of(store).open()).backends.notes, clock)
    (outcome,) = (await outcomes.read(["score"])).values()
    assert outcome.succeeded_at == clock.now()


async def test_a_drain_handles_what_was_due_when_it_was_called(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs: list[str] = []

    @feature(entity=user, refresh="1s", materialize=True)
    async def slow(user_id: str) -> int:
        runs.append(user_id)
        clock.advance("3s")
        await Scheduler(engine, Outage("ticks")).tick(clock.now())
        return len(runs)

    engine = await runtime_of(store).open()
    await know(store, "u1")
    await store.drain()
    for _ in range(2):
        runs.clear()
        clock.advance("1s")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.drain()
        assert runs == ["u1"]


async def is_drained(store: FeatureStore) -> bool:
    return not await backlog(store)


async def test_a_drain_does_not_wait_for_what_becomes_due_while_other_workers_run(
    settings: Settings, clock: ManualClock
) -> None:
    stores = [FeatureStore(settings=settings, clock=clock) for _ in range(2)]
    runs: list[str] = []
    for opened in stores:

        @entity(opened)
        class User:
            user_id: str

        declare_seen(User)

        @feature(entity=User, refresh="1s", materialize=True)
        async def slow(user_id: str) -> int:
            runs.append(user_id)
            if user_id == "u0":
                await asyncio.sleep(0.01)
                await tick()
            return len(runs)

    drained, running = stores
    engine = await runtime_of(drained).open()

    async def tick() -> None:
        """Let the next run be due before this one has ended."""
        clock.advance("1s")
        await Scheduler(engine, Outage("ticks")).tick(clock.now())

    worker = Worker(running)
    task = asyncio.create_task(worker.run())
    try:
        await know(drained, *(f"u{number}" for number in range(8)))
        await until(partial(is_drained, drained))
        await tick()
        await until(lambda: len(runs) > 0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await drained.drain()
        assert await backlog(drained)
    finally:
        worker.stop()
        await task
        for opened in stores:
            await opened.close()
