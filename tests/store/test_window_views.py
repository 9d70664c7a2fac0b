"""All windows of a family for one entity, and their tiles: in a store, by keys and by tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypedDict

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, create_app, entity, feature
from headwater.client import AsyncClient
from headwater.errors import CallerLimitError, InvalidInputError, UnknownNameError
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.mcp.conftest import as_caller, call, problem

pytestmark = pytest.mark.both_environments

_HOUR = timedelta(hours=1)


class Sale(TypedDict):
    amount: int
    kind: str


@pytest.fixture
async def shop(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        trigger="purchase",
        window=["1h", "1d"],
        aggregate=["count", "sum", "max", "rate", "last(2)"],
    )
    def spend(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(
        entity=User,
        trigger="purchase",
        window="1d",
        aggregate="sum",
        value="amount",
        by="kind",
        hop="1h",
    )
    def kinds(user_id: str, event: ServiceEvent) -> Sale:
        return Sale(amount=event.payload["amount"], kind=event.payload["kind"])

    @feature(entity=User, trigger="purchase")
    def last_amount(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    # In the middle of an hour, so that tiles of hours are known.
    since = clock.now() - clock.now().replace(minute=0, second=0, microsecond=0)
    clock.advance(1.5 * _HOUR - since)
    async with store:
        for amount, ago in ((5, 2 * _HOUR), (7, timedelta(minutes=10)), (2, timedelta(0))):
            payload = {"amount": amount, "kind": "books" if amount > 2 else "food"}
            await store.publish("purchase", "ada", payload, timestamp=clock.now() - ago)
        await store.drain()
        yield store


async def test_all_windows_of_a_family_are_read_at_one_moment(
    shop: FeatureStore, clock: ManualClock
) -> None:
    folded = clock.now()
    read = await shop.get_feature_windows("spend", "ada")
    assert (read.family, read.entity, read.entity_id) == ("spend", "User", "ada")
    assert read.as_of == folded
    assert read.last_fold is not None
    assert folded <= read.last_fold < folded + timedelta(milliseconds=1)
    values = {(each.aggregate, each.window): each.value for each in read.values}
    assert (values["sum", "1h"], values["sum", "1d"]) == (9, 14)
    assert (values["last(2)", "1h"], values["max", "1d"]) == ([7, 2], 7)
    names = [each.feature for each in read.values]
    assert [each.value for each in read.values] == [
        (await shop.get_feature(name, "ada")) for name in names
    ]
    assert (await shop.get_feature_windows("spend_sum_1h", "ada")) == read


async def test_the_tiles_of_a_level_add_up_to_its_windows(
    shop: FeatureStore, clock: ManualClock
) -> None:
    read = await shop.get_feature_windows("spend", "ada")
    minutes, hours = read.levels
    assert (minutes.hop_us, list(minutes.windows)) == (60_000_000, ["1h"])
    assert (hours.hop_us, list(hours.windows)) == (3_600_000_000, ["1d"])
    assert [tile.values["sum"] for tile in minutes.tiles] == [7, 2]
    assert [tile.values["sum"] for tile in hours.tiles] == [5, 9]
    first, last = hours.tiles
    assert last.start <= clock.now() < last.end
    assert (last.start - first.start, last.end - last.start) == (2 * _HOUR, _HOUR)
    assert last.values == {
        "count": 2, "sum": 9, "max": 7, "rate": 2 / 3600, "last(2)": [7, 2]
    }  # fmt: skip
    assert first.values == {"count": 1, "sum": 5, "max": 5, "rate": 1 / 3600}
    clock.advance(2 * _HOUR)
    fallen = await shop.get_feature_windows("spend", "ada")
    assert [len(level.tiles) for level in fallen.levels] == [0, 2]
    assert {each.value for each in fallen.values if each.window == "1h"} == {0, None}
    sources = {each.aggregate: each.source for each in fallen.values if each.window == "1h"}
    assert (sources["sum"], sources["max"]) == ("online", "missing")


async def test_the_tiles_of_a_keyed_family_have_its_keys(shop: FeatureStore) -> None:
    read = await shop.get_feature_windows("kinds", "ada")
    assert [each.value for each in read.values] == [{"books": 12, "food": 2}]
    (level,) = read.levels
    assert [tile.values for tile in level.tiles] == [
        {"sum": {"books": 5}},
        {"sum": {"books": 7, "food": 2}},
    ]


async def test_an_entity_without_contributions_has_no_tiles(shop: FeatureStore) -> None:
    read = await shop.get_feature_windows("spend", "bob")
    assert (read.last_fold, list(read.levels)) == (None, [])
    assert next(each.value for each in read.values if each.aggregate == "count") == 0


async def test_a_feature_without_windows_is_refused(shop: FeatureStore) -> None:
    with pytest.raises(InvalidInputError, match="has no windows"):
        await shop.get_feature_windows("last_amount", "ada")
    with pytest.raises(UnknownNameError, match="did you mean 'spend'"):
        await shop.get_feature_windows("spent", "ada")


@pytest.mark.parametrize(
    "limits", [CallerLimits(tenant="acme-"), CallerLimits(entities=frozenset({"Order"}))]
)
async def test_limits_of_a_key_apply_to_windows(shop: FeatureStore, limits: CallerLimits) -> None:
    set_caller(Caller("acme", frozenset({"read"}), limits))
    for name in ("spend", "spend_sum_1h"):
        with pytest.raises(CallerLimitError):
            await shop.get_feature_windows(name, "ada")


async def test_a_client_and_a_model_read_the_same_windows(shop: FeatureStore) -> None:
    read = await shop.get_feature_windows("spend", "ada")
    transport = httpx.ASGITransport(create_app(shop))
    async with AsyncClient("http://localhost", settings=Settings(), transport=transport) as client:
        assert await client.get_feature_windows("spend", "ada") == read
        for read_of_family in (
            client.get_feature("spend", "ada"),
            client.get_feature_values(["spend"], ["ada"]),
            client.get_historical_features(
                [{"user_id": "ada", "timestamp": read.as_of}], ["spend"]
            ),
        ):
            with pytest.raises(InvalidInputError, match="spend_count_1h, spend_sum_1h"):
                await read_of_family
    async with as_caller(shop) as model:
        answer, _ = await call(model, "get_windows", feature="spend", entity_id="ada")
        assert [each["value"] for each in answer["values"]] == [each.value for each in read.values]
        assert answer["levels"] == []
        refused = await problem(model, "get_feature", feature="spend", entity_id="ada")
        assert "spend_sum_1h" in refused
