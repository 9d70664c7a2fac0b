"""Values come back in their types, and ids are written one way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy
import pytest

from headwater import FeatureStore, FeatureValue, ServiceEvent, entity, feature
from headwater.errors import EventError, FeatureValueError, InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import past, records


class Address(msgspec.Struct):
    city: str
    zip_codes: list[int]


@dataclass
class Profile:
    name: str
    since: datetime


MORNING = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)


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
async def test_an_id_with_a_joiner_is_another_one_than_without_it(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", default=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("total", user_id)) + 1

    spelled = "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627"
    for entity_id in (spelled, spelled, spelled.replace("\u200c", "")):
        await store.publish("buy", entity_id)
    await store.drain()
    assert await store.get_feature("total", spelled) == 2
    rows = [{"user_id": spelled, "timestamp": clock.now()}]
    frame = await store.get_historical_features(rows, ["total"])
    assert [row["total"] for row in frame] == [2]
    await store.admin.forget("User", spelled, reason="asked")
    assert await store.get_feature("total", spelled.replace("\u200c", "")) == 1


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
