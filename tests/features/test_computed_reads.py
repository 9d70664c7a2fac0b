"""Reading values that functions compute: shared, in time, and without deadlocks."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from headwater import FeatureStore, FeatureValue, ServiceEvent, feature
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    FeatureFailedError,
    FunctionRaisedError,
    HandlerTimeoutError,
    UnknownNameError,
)
from headwater.features.call_scope import at_moment
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, past, records, until, until_shared
from tests.features.sync_time import SyncTime


@pytest.mark.parametrize("ttl", [None, "10m"])
async def test_concurrent_readers_of_one_on_demand_value_get_separate_objects(
    store: FeatureStore, user: type, ttl: str | None
) -> None:
    calls = 0
    go_on = asyncio.Event()

    @feature(entity=user, ttl=ttl)
    async def basket(user_id: str) -> dict[str, list[str]]:
        nonlocal calls
        calls += 1
        await go_on.wait()
        return {"items": ["pen"]}

    readers = [asyncio.create_task(store.get_feature("basket", "u1")) for _ in range(3)]
    await until_shared(store, 3)
    go_on.set()
    baskets = await asyncio.gather(*readers)
    assert calls == 1
    baskets[0]["items"].append("lamp")
    assert baskets[1:] == [{"items": ["pen"]}] * 2
    twice = await store.get_feature_values(["basket"], ["u1", "u1"])
    assert twice[0]["basket"].value is not twice[1]["basket"].value


async def test_an_on_demand_value_is_computed_at_every_read(
    store: FeatureStore, user: type
) -> None:
    calls: list[str] = []

    @feature(entity=user)
    async def greeting(user_id: str) -> str:
        calls.append(user_id)
        return f"hello {user_id}"

    assert await store.get_feature("greeting", "u1") == "hello u1"
    assert await store.get_feature("greeting", "u1") == "hello u1"
    assert calls == ["u1", "u1"]


@pytest.mark.both_environments
async def test_an_on_demand_value_with_a_time_to_live_is_kept_that_long_and_goes_to_history(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    calls = 0

    @feature(entity=user, ttl="1m")
    def score(user_id: str) -> int:
        nonlocal calls
        calls += 1
        return calls

    assert await store.get_feature("score", "u1") == 1
    clock.advance("59s")
    (row,) = await store.get_feature_values(["score"], ["u1"])
    then = clock.now() - timedelta(seconds=59)
    assert row["score"] == FeatureValue(1, then, "online", then)
    clock.advance("1s")
    assert await store.get_feature("score", "u1") == 2
    assert await past(store, "score") == [1, 2]


async def test_concurrent_readers_of_one_missing_value_share_one_computation(
    store: FeatureStore, user: type
) -> None:
    calls: list[str] = []
    go_on = asyncio.Event()

    @feature(entity=user)
    async def slow(user_id: str) -> int:
        calls.append(user_id)
        await go_on.wait()
        return len(user_id)

    readers = [asyncio.create_task(store.get_feature("slow", "u1")) for _ in range(20)]
    another = asyncio.create_task(store.get_feature("slow", "u2"))
    await until(lambda: len(calls) == 2)
    readers.append(asyncio.create_task(store.get_feature("slow", "u1")))
    await until_shared(store, 22)
    go_on.set()
    assert set(await asyncio.gather(*readers, another)) == {2}
    assert sorted(calls) == ["u1", "u2"]


async def test_a_reader_who_gives_up_does_not_take_the_value_from_the_others(
    store: FeatureStore, user: type
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=user)
    async def slow(user_id: str) -> int:
        begun.set()
        await go_on.wait()
        return 1

    impatient = asyncio.create_task(store.get_feature("slow", "u1"))
    await begun.wait()
    patient = asyncio.create_task(store.get_feature("slow", "u1"))
    await until_shared(store, 2)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    go_on.set()
    assert await patient == 1


async def test_a_computation_that_fails_after_all_readers_have_gone_is_logged(
    store: FeatureStore, user: type, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=user, ttl="5m")
    async def slow(user_id: str) -> int:
        begun.set()
        await go_on.wait()
        raise LookupError("no such plan")

    impatient = asyncio.create_task(store.get_feature("slow", "u1"))
    await begun.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    go_on.set()
    written = ""

    def told() -> bool:
        nonlocal written
        log.flush()
        written += capsys.readouterr().err
        return bool(records(written, "feature computation failed after its callers had gone"))

    await until(told)
    (record,) = records(written, "feature computation failed after its callers had gone")
    assert record["feature"] == "slow"


async def test_a_computation_that_is_not_kept_ends_with_its_last_reader(
    store: FeatureStore, user: type
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @feature(entity=user)
    async def slow(user_id: str) -> str:
        if begun.is_set():
            return "again"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    readers = [asyncio.create_task(store.get_feature("slow", "u1")) for _ in range(2)]
    await until_shared(store, 2)
    await begun.wait()
    for reader in readers:
        assert not ended.is_set()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    assert await store.get_feature("slow", "u1") == "again"
    await ended.wait()


async def test_computations_that_wait_for_each_other_fail_and_do_not_hang(
    store: FeatureStore, user: type
) -> None:
    both = asyncio.Barrier(2)

    @feature(entity=user)
    async def left(user_id: str) -> int:
        await both.wait()
        return int(await store.get_feature("right", user_id))

    @feature(entity=user)
    async def right(user_id: str) -> int:
        await both.wait()
        return int(await store.get_feature("left", user_id))

    async with asyncio.timeout(PATIENCE_SECONDS):
        ends = await asyncio.gather(
            store.get_feature("left", "u1"),
            store.get_feature("right", "u1"),
            return_exceptions=True,
        )
    assert all(isinstance(end, FeatureFailedError) for end in ends)
    assert any("calls itself" in str(end) for end in ends)


async def test_a_failed_computation_fails_the_read_with_the_features_name(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def broken(user_id: str) -> int:
        raise LookupError("no such plan")

    with pytest.raises(FeatureFailedError, match=r"'broken' failed for 'u1': .*no such plan"):
        await store.get_feature("broken", "u1")
    with pytest.raises(FeatureFailedError):
        await store.get_feature("broken", "u1")


async def test_different_features_of_one_request_are_computed_at_the_same_time(
    store: FeatureStore, user: type
) -> None:
    both = asyncio.Barrier(4)

    @feature(entity=user)
    async def left(user_id: str) -> int:
        await both.wait()
        return 1

    @feature(entity=user)
    async def right(user_id: str) -> int:
        await both.wait()
        return 2

    async with asyncio.timeout(PATIENCE_SECONDS):
        values = await store.get_features(["left", "right"], ["u1", "u2"])
    assert values == {"u1": {"left": 1, "right": 2}, "u2": {"left": 1, "right": 2}}


async def test_sync_features_do_not_block_the_event_loop(store: FeatureStore, user: type) -> None:
    release = threading.Event()

    @feature(entity=user)
    def stubborn(user_id: str) -> bool:
        return release.wait(PATIENCE_SECONDS)

    reading = asyncio.create_task(store.get_feature("stubborn", "u1"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not reading.done()
    release.set()
    assert await reading is True


async def test_a_computed_value_that_does_not_fit_is_its_functions_failure(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def whole(user_id: str) -> int:
        return "seven"  # type: ignore[return-value]

    with pytest.raises(
        FeatureFailedError, match=r"'whole' failed for 'u1': .*cannot store 'seven'"
    ):
        await store.get_feature("whole", "u1")


async def test_a_value_computed_from_a_default_has_no_age_and_lives_for_its_ttl(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", default=0.0)
    async def spent(user_id: str, event: ServiceEvent) -> float:
        return 10.0

    @feature(entity=user, ttl="1h")
    async def tier(user_id: str) -> str:
        return "gold" if await store.get_feature("spent", user_id) else "new"

    (row,) = await store.get_feature_values(["tier"], ["u1"])
    provenance = frozenset({("feature", "User", "spent", "u1")})
    tier_value = row["tier"]
    assert (tier_value.value, tier_value.as_of, tier_value.source) == ("new", None, "computed")
    assert tier_value.provenance == provenance
    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_feature("tier", "u1") == "new"
    clock.advance("1h")
    assert await store.get_feature("tier", "u1") == "gold"


async def test_an_on_demand_function_may_not_run_for_ever(
    settings: Settings, store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user)
    async def slow(user_id: str) -> int:
        await asyncio.sleep(60)
        return 1

    await runtime_of(store).rebind(settings.replace(worker={"handler_timeout": 0.05}), clock)
    with pytest.raises(HandlerTimeoutError):
        await store.get_feature("slow", "u1")


async def test_features_that_read_each_other_in_a_circle_say_so(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def hen(user_id: str) -> int:
        return int(await store.get_feature("egg", user_id))

    @feature(entity=user)
    def egg(user_id: str) -> int:
        return int(store.sync.get_feature("hen", user_id))

    with pytest.raises(FeatureFailedError, match="same arguments: hen → egg → hen"):
        await store.get_feature("hen", "u1")


async def test_sync_functions_that_read_each_other_do_not_run_out_of_threads(
    settings: Settings, store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user)
    def inner(user_id: str) -> str:
        return user_id

    @feature(entity=user)
    def outer(user_id: str) -> str:
        return f"<{store.sync.get_feature('inner', user_id)}>"

    await runtime_of(store).rebind(settings.replace(worker={"threads": 2}), clock)
    ids = [f"u{number}" for number in range(20)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        found = await store.get_features(["outer"], ids)
    assert found == {user_id: {"outer": f"<{user_id}>"} for user_id in ids}


async def test_time_in_the_queue_for_a_thread_is_not_time_to_run(
    settings: Settings, store: FeatureStore, user: type, clock: ManualClock, sync_time: SyncTime
) -> None:
    @feature(entity=user, trigger="go", max_retries=0)
    def slow(user_id: str, event: ServiceEvent) -> int:
        sync_time.advance(20)
        # Long enough for several checks of the time limits.
        time.sleep(0.01)
        return 2

    await runtime_of(store).rebind(
        settings.replace(worker={"threads": 1, "handler_timeout": 60}, partitions=1), clock
    )
    ids = [f"u{number}" for number in range(20)]
    for user_id in ids:
        await store.publish("go", user_id)
    await store.drain()
    assert await store.get_features(["slow"], ids) == {user_id: {"slow": 2} for user_id in ids}


@pytest.mark.both_environments
async def test_a_live_reader_never_shares_the_computation_of_a_past_moment(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user)
    async def doubled(user_id: str) -> int:
        value = await store.get_feature("total", user_id)
        begun.set()
        await go_on.wait()
        return int(2 * value)

    await store.set_feature("total", "u1", 1)
    then = clock.now()
    clock.advance("1h")
    await store.set_feature("total", "u1", 100)
    with at_moment(then):
        past = asyncio.create_task(store.get_features(["doubled"], ["u1"]))
        await begun.wait()
    live = asyncio.create_task(store.get_features(["doubled"], ["u1"]))
    await asyncio.sleep(0)
    go_on.set()
    assert (await past, await live) == ({"u1": {"doubled": 2}}, {"u1": {"doubled": 200}})


async def test_a_name_that_a_function_mistypes_is_the_functions_mistake(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    async def doubled(user_id: str) -> float:
        return 2 * float(await store.get_feature("scoer", user_id))

    with pytest.raises(FunctionRaisedError, match=r"feature 'doubled' failed .*'scoer'") as caught:
        await store.get_feature("doubled", "u1")
    assert isinstance(caught.value.raised, UnknownNameError)
