"""Reading stored, composed and missing values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import FeatureStore, FeatureValue, ServiceEvent, entity, feature
from headwater.errors import InvalidInputError, NotFoundError
from headwater.features.call_scope import at_moment
from headwater.testing import ManualClock


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
