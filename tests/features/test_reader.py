"""Reading stored, computed, composed and missing values."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy
import pytest

from headwater import FeatureStore, FeatureValue, ServiceEvent, entity, feature
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    EventError,
    FeatureFailedError,
    FeatureValueError,
    FunctionRaisedError,
    HandlerTimeoutError,
    InvalidInputError,
    NotFoundError,
    UnknownNameError,
)
from headwater.features.frame import at_moment
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import past, records, until, until_shared


@pytest.mark.both_environments
async def test_a_value_past_its_time_to_live_counts_as_absent(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="seen", ttl="10m")
    async def online(user_id: str, event: ServiceEvent) -> bool:
        return True

    @feature(entity=user, trigger="seen", ttl="10m", default="away")
    async def place(user_id: str, event: ServiceEvent) -> str:
        return "here"

    await store.publish("seen", "u1")
    await store.drain()
    clock.advance("9m")
    assert await store.get_features(["online", "place"], ["u1"]) == {
        "u1": {"online": True, "place": "here"}
    }
    clock.advance("1m")
    assert await store.get_features(["online", "place"], ["u1"]) == {
        "u1": {"online": None, "place": "away"}
    }


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


@pytest.mark.both_environments
async def test_a_value_past_its_time_to_live_is_absent_for_handlers_too(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="seen", ttl="10m")
    async def streak(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("streak", user_id) or 0) + 1

    for pause in ("1m", "1m", "11m", "1m"):
        clock.advance(pause)
        await store.publish("seen", "u1")
        await store.drain()
    assert await store.get_feature("streak", "u1") == 2


async def test_a_feature_without_a_value_gives_its_default_and_says_so(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="seen", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="seen")
    async def last(user_id: str, event: ServiceEvent) -> str:
        return "x"

    (row,) = await store.get_feature_values(["visits", "last"], ["u1"])
    assert row == {
        "visits": FeatureValue(0, None, "default"),
        "last": FeatureValue(None, None, "missing"),
    }


@pytest.mark.both_environments
async def test_a_stored_value_says_how_old_it_is_and_where_it_came_from(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="seen")
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    at = clock.now() - timedelta(minutes=5)
    await store.publish("seen", "u1", timestamp=at)
    await store.drain()
    (row,) = await store.get_feature_values(["visits"], ["u1"])
    assert row["visits"] == FeatureValue(1, at, "online", clock.now())
    assert row["visits"].age_ms(clock.now()) == 300_000


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
    await asyncio.sleep(0)
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

    async with asyncio.timeout(5):
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

    async with asyncio.timeout(5):
        values = await store.get_features(["left", "right"], ["u1", "u2"])
    assert values == {"u1": {"left": 1, "right": 2}, "u2": {"left": 1, "right": 2}}


async def test_a_template_is_composed_from_other_features_each_computed_once(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    calls = 0

    @feature(entity=user, template="{greeting}, {name}: {{{total}}}")
    def blurb(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, template="Dear {name}")
    def greeting(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user)
    async def name(user_id: str) -> str:
        nonlocal calls
        calls += 1
        return "Ada {total}"

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> float:
        return 12.5

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_feature("blurb", "u1") == "Dear Ada {total}, Ada {total}: {12.5}"
    assert calls == 1


async def test_a_template_without_all_of_its_inputs_has_no_value(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, template="spent {total}")
    def spent(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, template="spent {total}", default="a newcomer")
    def kindly(user_id: str) -> str: ...  # type: ignore[empty-body]

    assert await store.get_features(["spent", "kindly"], ["u1"]) == {
        "u1": {"spent": None, "kindly": "a newcomer"}
    }


async def test_a_composed_or_computed_value_is_as_old_as_its_oldest_input(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="first")
    async def first(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="second")
    async def second(user_id: str, event: ServiceEvent) -> int:
        return 2

    @feature(entity=user, template="{first} and {second}")
    def both(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user)
    async def added(user_id: str) -> int:
        values = await store.get_features(["first", "second"], [user_id])
        return sum(values[user_id].values())

    oldest = clock.now()
    await store.publish("first", "u1")
    clock.advance("1h")
    await store.publish("second", "u1")
    await store.drain()
    (row,) = await store.get_feature_values(["both", "added"], ["u1"])
    provenance = frozenset(("feature", "User", name, "u1") for name in ("first", "second"))
    assert row["both"] == FeatureValue("1 and 2", oldest, "computed", None, provenance)
    computed = row["added"]
    assert (computed.value, computed.as_of, computed.source) == (3, oldest, "computed")
    assert computed.provenance == provenance
    assert [(each.feature, each.value.value) for each in computed.inputs] == [
        ("first", 1),
        ("second", 2),
    ]


@pytest.mark.both_environments
async def test_stored_computed_and_template_values_come_in_the_requested_order(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 7

    @feature(entity=user)
    def name(user_id: str) -> str:
        return user_id.upper()

    @feature(entity=user, template="{name}: {total}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    await store.publish("buy", "u1")
    await store.drain()
    values = await store.get_features(["line", "total", "name"], ["u2", "u1"])
    assert list(values) == ["u2", "u1"]
    assert list(values["u1"].items()) == [("line", "U1: 7"), ("total", 7), ("name", "U1")]
    assert values["u2"] == {"line": None, "total": None, "name": "U2"}


async def test_an_unknown_feature_is_an_error_that_names_the_nearest(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy")
    async def total_spend(user_id: str, event: ServiceEvent) -> int:
        return 7

    with pytest.raises(NotFoundError, match="did you mean 'total_spend'"):
        await store.get_features(["total_spend", "totl_spend"], ["u1"])
    with pytest.raises(NotFoundError, match="did you mean 'total_spend'"):
        await store.set_feature("total_spent", "u1", 1)


async def test_features_of_different_entities_are_not_read_in_one_call(
    store: FeatureStore, user: type
) -> None:
    @entity(store)
    class Team:
        team_id: str

    @feature(entity=user)
    def of_user(user_id: str) -> int:
        return 1

    @feature(entity=Team)
    def of_team(team_id: str) -> int:
        return 1

    with pytest.raises(InvalidInputError, match="Team, User"):
        await store.get_features(["of_user", "of_team"], ["x"])
    with pytest.raises(InvalidInputError, match="at least one feature"):
        await store.get_features([], ["x"])
    with pytest.raises(InvalidInputError, match="user_id must be printable text"):
        await store.get_feature("of_user", "")


async def test_sync_features_do_not_block_the_event_loop(store: FeatureStore, user: type) -> None:
    release = threading.Event()

    @feature(entity=user)
    def stubborn(user_id: str) -> bool:
        return release.wait(10)

    reading = asyncio.create_task(store.get_feature("stubborn", "u1"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not reading.done()
    release.set()
    assert await reading is True


class Address(msgspec.Struct):
    city: str
    zip_codes: list[int]


@dataclass
class Profile:
    name: str
    since: datetime


MORNING = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)


@pytest.mark.both_environments
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 2**53 + 1),
        (float, 0.1),
        (str, "é\n\u2028"),
        (bool, False),
        (datetime, MORNING),
        (list[int], [1, 2]),
        (dict[str, float], {"a": 0.5}),
        (Address, Address("Rome", [1, 2])),
        (Profile, Profile("Ada", MORNING)),
        (int | None, None),
    ],
)
async def test_a_value_comes_back_in_its_annotated_type(
    store: FeatureStore, user: type, annotation: object, value: object
) -> None:
    def thing(user_id: str) -> object: ...

    thing.__annotations__["return"] = annotation
    feature(entity=user, ttl="1h")(thing)
    await store.set_feature("thing", "u1", value)
    back = await store.get_feature("thing", "u1")
    assert back == value
    assert type(back) is type(value)


async def test_numpy_values_are_accepted_and_come_back_as_pythons_own(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="x")
    async def score(user_id: str, event: ServiceEvent) -> float:
        return numpy.float64(0.5)

    @feature(entity=user, trigger="x")
    async def parts(user_id: str, event: ServiceEvent) -> list[int]:
        return numpy.array([1, 2])  # type: ignore[return-value]

    await store.publish("x", "u1")
    await store.drain()
    score_back = await store.get_feature("score", "u1")
    assert (score_back, type(score_back)) == (0.5, float)
    assert await store.get_feature("parts", "u1") == [1, 2]


async def test_a_string_is_refused_as_a_list_of_names_or_ids(
    store: FeatureStore, user: type
) -> None:
    for names, ids in ((["plan"], "u1"), ("plan", ["u1"])):
        for verb in (store.get_features, store.get_feature_values):
            with pytest.raises(InvalidInputError, match=r"is a string; pass a list, such as \['"):
                await verb(names, ids)


@pytest.mark.parametrize("value", [float("nan"), "7", 7.5, object(), None, 2**64])
async def test_a_value_that_cannot_be_stored_is_refused_with_the_features_name(
    store: FeatureStore, user: type, value: object
) -> None:
    @feature(entity=user, trigger="x")
    async def whole(user_id: str, event: ServiceEvent) -> int:
        return 1

    with pytest.raises(FeatureValueError, match="feature 'whole' cannot store"):
        await store.set_feature("whole", "u1", value)
    assert await store.get_feature("whole", "u1") is None


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


async def test_an_id_that_is_a_whole_number_may_be_given_as_one(store: FeatureStore) -> None:
    @entity(store)
    class Device:
        device_id: int

    @feature(entity=Device, trigger="reading")
    async def last(device_id: int, event: ServiceEvent) -> int:
        return device_id + int(event.payload["more"])

    event = await store.publish("reading", 7, {"more": 1})
    assert event.entity_id == "7"
    await store.drain()
    assert await store.get_feature("last", 7) == await store.get_feature("last", "7") == 8
    with pytest.raises(InvalidInputError, match="not the bool True"):
        await store.get_features(["last"], [True])
    with pytest.raises(InvalidInputError, match=r"must be a whole number such as 7, not '07'"):
        await store.get_feature("last", "07")


@pytest.mark.both_environments
async def test_set_feature_writes_online_and_to_history(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="x")
    async def plan(user_id: str, event: ServiceEvent) -> str:
        return "free"

    @feature(entity=user, template="on {plan}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    at = clock.now() - timedelta(days=1)
    await store.set_feature("plan", "u1", "gold", as_of=at)
    (row,) = await store.get_feature_values(["plan"], ["u1"])
    assert row["plan"] == FeatureValue("gold", at, "online", clock.now())
    assert await past(store, "plan") == ["gold"]
    with pytest.raises(InvalidInputError, match=r"composed of other features .* set those"):
        await store.set_feature("line", "u1", "x")
    with pytest.raises(InvalidInputError, match="time zone"):
        await store.set_feature("plan", "u1", "x", as_of=at.replace(tzinfo=None))


@pytest.mark.both_environments
async def test_a_value_set_with_an_older_moment_goes_to_history_alone(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="x")
    async def plan(user_id: str, event: ServiceEvent) -> str:
        return "free"

    await store.set_feature("plan", "u1", "gold")
    await store.set_feature("plan", "u1", "old", as_of=clock.now() - timedelta(days=1))
    assert await store.get_feature("plan", "u1") == "gold"
    assert sorted(await past(store, "plan")) == ["gold", "old"]


async def test_a_value_with_a_future_time_or_an_empty_id_is_refused(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="x")
    async def plan(user_id: str, event: ServiceEvent) -> str:
        return "free"

    with pytest.raises(InvalidInputError, match="is in the future"):
        await store.set_feature("plan", "u1", "gold", as_of=clock.now() + timedelta(days=1))
    with pytest.raises(InvalidInputError, match="user_id must be printable text of 1 to"):
        await store.set_feature("plan", "", "gold")
    with pytest.raises(InvalidInputError, match=r"user_id must be text \(str\), not the int 7"):
        await store.set_feature("plan", 7, "gold")
    with pytest.raises(InvalidInputError, match=r"as str: .* return or pass a value of this type"):
        await store.set_feature("plan", "u1", 7)


async def test_the_stores_verbs_take_whole_numbers_where_the_entity_does(
    store: FeatureStore,
) -> None:
    @entity(store)
    class Shop:
        shop_id: int

    @feature(entity=Shop, trigger="sale")
    async def sales(shop_id: int, event: ServiceEvent) -> int:
        return (await store.get_feature("sales", shop_id) or 0) + 1

    await store.publish("sale", "7")
    await store.drain()
    await store.set_feature("sales", 8, 5)
    assert await store.get_features(["sales"], [7, 8]) == {7: {"sales": 1}, 8: {"sales": 5}}
    assert await store.get_feature("sales", "7") == 1
    with pytest.raises(InvalidInputError, match="must be a whole number"):
        await store.get_feature("sales", "seven")


async def test_a_value_computed_from_a_default_has_no_age_and_is_not_stored(
    store: FeatureStore, user: type
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


async def test_a_default_is_a_new_one_for_each_reader(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="tag", default=[])
    async def tags(user_id: str, event: ServiceEvent) -> list[str]:
        known: list[str] = await store.get_feature("tags", user_id)
        known.append(event.payload["tag"])
        return known

    for user_id, tag in (("u1", "a"), ("u2", "b")):
        await store.publish("tag", user_id, {"tag": tag})
    await store.drain()
    found = await store.get_features(["tags"], ["u1", "u2", "u3"])
    assert found == {"u1": {"tags": ["a"]}, "u2": {"tags": ["b"]}, "u3": {"tags": []}}


@pytest.mark.parametrize("entity_id", ["07", "+7", " 7", "0_7"])
async def test_a_whole_number_has_one_spelling(store: FeatureStore, entity_id: str) -> None:
    @entity(store)
    class Shop:
        shop_id: int

    @feature(entity=Shop, trigger="sale")
    async def sales(shop_id: int, event: ServiceEvent) -> int:
        return 1

    with pytest.raises(InvalidInputError, match="must be a whole number"):
        await store.get_feature("sales", entity_id)


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
    async with asyncio.timeout(10):
        found = await store.get_features(["outer"], ids)
    assert found == {user_id: {"outer": f"<{user_id}>"} for user_id in ids}


async def test_time_in_the_queue_for_a_thread_is_not_time_to_run(
    settings: Settings, store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="go")
    def slow(user_id: str, event: ServiceEvent) -> int:
        return 1 if threading.Event().wait(0.05) else 2

    await runtime_of(store).rebind(
        settings.replace(worker={"threads": 1, "handler_timeout": 0.4}, partitions=1), clock
    )
    ids = [f"u{number}" for number in range(20)]
    for user_id in ids:
        await store.publish("go", user_id)
    await store.drain()
    assert await store.get_features(["slow"], ids) == {user_id: {"slow": 2} for user_id in ids}


@pytest.mark.parametrize("entity_id", ["a\x00b", "line\nbreak", "x" * 1025])
async def test_an_id_that_no_event_can_have_is_refused(
    store: FeatureStore, user: type, entity_id: str
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    with pytest.raises(InvalidInputError, match="user_id must be printable"):
        await store.set_feature("total", entity_id, 1)


@pytest.mark.both_environments
async def test_a_value_whose_time_was_over_then_is_not_read_at_that_moment(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", ttl="1m")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    await store.set_feature("total", "u1", 7)
    written = clock.now()
    clock.advance("1h")
    for after, seen in ((timedelta(seconds=30), 7), (timedelta(minutes=2), None)):
        with at_moment(written + after):
            assert await store.get_features(["total"], ["u1"]) == {"u1": {"total": seen}}


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


@pytest.mark.both_environments
async def test_one_entity_with_an_old_type_does_not_fail_a_read_of_many(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    def declared(annotation: type) -> FeatureStore:
        store = FeatureStore(settings=settings)

        @store.entity
        class User:
            user_id: str

        async def level(user_id: str, event: ServiceEvent) -> object:
            raise AssertionError("set from outside")

        def shown(user_id: str) -> str: ...  # type: ignore[empty-body]

        level.__annotations__["return"] = annotation
        feature(entity=User, trigger="visit")(level)
        feature(entity=User, template="level {level}")(shown)
        return store

    async with declared(str) as before:
        await before.set_feature("level", "old", "gold")
    async with declared(int) as store:
        await store.set_feature("level", "new", 3)
        ids = ["new", "old", "none"]
        values = await store.get_features(["level"], ids)
        assert [values[each]["level"] for each in ids] == [3, None, None]
        rows = await store.get_feature_values(["level", "shown"], ids)
        assert [(row["level"].source, row["shown"].value) for row in rows] == [
            ("online", "level 3"),
            ("missing", None),
            ("missing", None),
        ]
        with pytest.raises(FeatureValueError, match='was stored as "gold", which is not int'):
            await store.get_feature("level", "old")
    (warning,) = records(capsys.readouterr().err, "stored value cannot be read")
    assert (warning["feature"], warning["entity_id"]) == ("level", "old")


@pytest.mark.both_environments
async def test_an_integer_of_numpy_is_an_id_wherever_an_int_is(store: FeatureStore) -> None:
    @entity(store)
    class Shop:
        shop_id: int

    @feature(entity=Shop, trigger="sale", default=0)
    async def sales(shop_id: int, event: ServiceEvent) -> int:
        loaded: Any = numpy.int64(shop_id)
        return int(await store.get_feature("sales", loaded)) + 1

    five: Any = numpy.int64(5)
    await store.publish("sale", five)
    await store.publish("sale", 5)
    await store.drain()
    assert await store.get_feature("sales", five) == 2
    assert await store.get_features(["sales"], [*numpy.array([5, 6])]) == {
        5: {"sales": 2},
        6: {"sales": 0},
    }
    with pytest.raises(InvalidInputError, match="a whole number"):
        await store.get_feature("sales", entity_id=True)
    with pytest.raises(EventError):
        await store.publish("sale", entity_id=True)


@pytest.mark.both_environments
async def test_a_value_of_an_old_type_is_neither_a_default_nor_fresh(settings: Settings) -> None:
    def declared(annotation: type, default: object) -> FeatureStore:
        store = FeatureStore(settings=settings)

        @store.entity
        class User:
            user_id: str

        async def level(user_id: str, event: ServiceEvent) -> object:
            raise AssertionError("set from outside")

        level.__annotations__["return"] = annotation
        feature(entity=User, trigger="visit", default=default, freshness="caught_up")(level)

        @store.context(freshness_sla="1h")
        async def levels() -> str:
            return str(await store.get_features(["level"], ["new", "old"]))

        return store

    async with declared(str, "none") as before:
        await before.set_feature("level", "old", "gold")
    async with declared(int, 0) as store:
        await store.set_feature("level", "new", 3)
        rows = await store.get_feature_values(["level"], ["new", "old", "none"])
        assert [(row["level"].value, row["level"].source) for row in rows] == [
            (3, "online"),
            (None, "missing"),
            (0, "default"),
        ]
        made = await store.assemble("levels", {})
        (violation,) = made.freshness_violations
        assert (violation.entity_id, violation.reason) == ("old", "missing")
