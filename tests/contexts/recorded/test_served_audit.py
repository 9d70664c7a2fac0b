"""An audit compares the values that contexts got with the ones known at that moment."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, feature
from headwater.core.clock import from_micros
from headwater.declarations.runtime import runtime_of
from headwater.features.cells import make_cell, make_change
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import past


def declare(store: FeatureStore, user: type, clock: ManualClock) -> None:
    """Features of all kinds."""

    @feature(entity=user, trigger="buy", default=0.0)
    async def total(user_id: str, event: ServiceEvent) -> float:
        return float(await store.get_feature("total", user_id)) + float(event.payload["amount"])

    @feature(entity=user, trigger="buy", ttl="10m")
    def basket(user_id: str, event: ServiceEvent) -> list[str]:
        return ["pen", str(event.payload["amount"])]

    @feature(entity=user, refresh="5m", materialize=True)
    async def rank(user_id: str) -> int:
        return int(await store.get_feature("total", user_id)) // 2

    @feature(entity=user, ttl="3m")
    async def cached(user_id: str) -> str:
        return f"{await store.get_feature('total', user_id)} at {clock.now():%M}"

    @feature(entity=user, log=True)
    def moment(user_id: str) -> str:
        return f"{clock.now():%H:%M}"

    @feature(entity=user, derived=True)
    async def tier(user_id: str) -> str:
        return "gold" if await store.get_feature("total", user_id) > 10 else "silver"

    @feature(entity=user, template="{tier} with {total}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]


NAMES = ["total", "basket", "rank", "cached", "moment", "tier", "line"]


@pytest.fixture
def summary(store: FeatureStore, user: type, clock: ManualClock) -> Any:
    declare(store, user, clock)

    @context(store)
    async def summary(user_id: str) -> list[ContextItem]:
        values = (await store.get_features(NAMES, [user_id]))[user_id]
        return [ContextItem(f"{name}: {value}") for name, value in values.items()]

    return summary


async def serve(store: FeatureStore, clock: ManualClock, summary: Any) -> None:
    """Assemble contexts of two entities while one of them changes."""
    for amount in (4.0, 5.0, 8.0):
        await store.publish("buy", "u1", {"amount": amount})
        await store.drain()
        await summary("u1")
        clock.advance("4m")
        await summary("u1")
        await summary("u2")
        clock.advance("1s")


async def test_all_values_that_were_served_are_known_in_history(
    store: FeatureStore, clock: ManualClock, summary: Any
) -> None:
    await serve(store, clock, summary)
    clock.advance("1d")
    await store.publish("buy", "u1", {"amount": 50.0})
    await store.drain()
    served = (await store.admin.audit()).served
    assert served.differences == []
    assert served.not_compared == {}
    assert (served.records, served.values, served.different) == (9, served.equal, 0)
    assert served.equal >= 9 * 7
    assert (await store.admin.audit(records=4)).served.records == 4
    assert (await store.admin.audit(records=0)).served.records == 0
    assert len(await past(store, "moment")) == 6


async def test_a_value_that_history_does_not_give_is_listed(
    store: FeatureStore, clock: ManualClock, summary: Any
) -> None:
    await serve(store, clock, summary)
    engine = await runtime_of(store).open()
    total = engine.registry.feature("total")
    # As if online values had missed a write, which was known to history before two contexts.
    micros = clock.micros() - 300_000_000
    cell = make_cell(total, 77.0, micros, micros)
    await engine.backends.offline.append([make_change(total, "u1", cell, "import", online=False)])
    served = (await store.admin.audit()).served
    # The next context got a cached value, which was computed from the same total.
    assert len({each.context_id for each in served.differences}) == len(served.differences) == 2
    for difference in served.differences:
        assert (difference.feature, difference.entity_id) == ("total", "u1")
        assert (difference.recorded, difference.history) == (9.0, 77.0)
        assert difference.at > from_micros(micros)
    assert served.values == served.equal + served.different


async def test_a_value_that_changes_during_the_assembly_is_equal(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="never")
    def score(user_id: str, event: ServiceEvent) -> int: ...  # type: ignore[empty-body]

    @context(store)
    async def changing(user_id: str) -> list[ContextItem]:
        texts = []
        for value in range(3):
            await store.set_feature("score", user_id, value)
            texts.append(str(await store.get_feature("score", user_id)))
            clock.advance("1s")
        await store.set_feature("score", user_id, 9)
        return [ContextItem(" ".join(texts))]

    made = await changing("u1")
    assert made.content == "0 1 2"
    served = (await store.admin.audit()).served
    assert (served.equal, served.different) == (3, 0)


async def test_values_that_cannot_be_compared_are_counted_by_reason(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="never")
    def score(user_id: str, event: ServiceEvent) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user)
    def plain(user_id: str) -> int:
        return 1

    @context(store)
    async def summary(user_id: str) -> list[ContextItem]:
        values = await asyncio.gather(
            store.get_feature("score", user_id), store.get_feature("plain", user_id)
        )
        return [ContextItem(str(values))]

    await store.set_feature("score", "u1", 5)
    first = await summary("u1")
    await summary("u1")
    place = next(n for n, read in enumerate(first.lineage.features) if read.feature == "score")
    await store.records.redact(first.context_id, f"/features/{place}/value", reason="test")
    served = (await store.admin.audit()).served
    assert (served.records, served.equal, served.different) == (2, 1, 0)
    assert served.not_compared == {
        "of on-demand features without history": 2,
        "withheld: recorded without content, or redacted": 1,
    }
    del runtime_of(store).registry.features["score"]
    served = (await store.admin.audit()).served
    assert served.not_compared["of features that are not declared any more"] == 1


shared = random.Random(7)


async def test_a_feature_that_uses_the_time_of_the_computer_or_chance_is_named_where_values_differ(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, derived=True)
    def moment(user_id: str) -> datetime:
        return datetime.now(UTC)

    @feature(entity=user, derived=True)
    def drawn(user_id: str) -> float:
        return shared.random()

    @feature(entity=user, derived=True)
    def steady(user_id: str) -> datetime:
        return store.clock.now()

    @context(store)
    async def summary(user_id: str) -> list[ContextItem]:
        values = (await store.get_features(["moment", "drawn", "steady"], [user_id]))[user_id]
        return [ContextItem(str(values))]

    await summary("u1")
    differences = (await store.admin.audit()).served.differences
    hints = {each.feature: each.hint for each in differences}
    assert hints.keys() == {"moment", "drawn"}
    assert "uses datetime.now" in hints["moment"]
    assert "uses shared.random" in hints["drawn"]
    assert all(__file__ in hint for hint in hints.values())


async def buy(store: FeatureStore, clock: ManualClock) -> None:
    """Change the total of a user, and let time pass."""
    await store.publish("buy", "u1", {"amount": 4.0})
    await store.drain()
    clock.advance("1m")


@pytest.mark.parametrize("name", ["kept", "kept_tier", "over", "nested", "unset"])
@pytest.mark.parametrize("bought", [False, True])
async def test_an_input_of_a_stored_value_is_compared_with_what_was_known_at_its_computation(
    store: FeatureStore, user: type, clock: ManualClock, name: str, bought: bool
) -> None:
    declare(store, user, clock)

    @feature(entity=user, ttl="1h")
    async def kept(user_id: str) -> str:
        return f"kept {await store.get_feature('total', user_id)}"

    @feature(entity=user, ttl="1h")
    async def kept_tier(user_id: str) -> str:
        return f"kept {await store.get_feature('line', user_id)}"

    @feature(entity=user, derived=True)
    async def over(user_id: str) -> str:
        return f"over {await store.get_feature('kept', user_id)}"

    @feature(entity=user, ttl="1h")
    async def nested(user_id: str) -> str:
        return f"nested {await store.get_feature('kept', user_id)}"

    @feature(entity=user, ttl="1h")
    async def unset(user_id: str) -> str:
        return f"unset {await store.get_feature('basket', user_id)}"

    @context(store)
    async def page(user_id: str) -> list[ContextItem]:
        return [ContextItem(await store.get_feature(name, user_id))]

    if bought:
        await buy(store, clock)
    await store.get_feature("kept", "u1")
    clock.advance("1m")
    first = await page("u1")
    clock.advance("1m")
    await buy(store, clock)
    assert (await page("u1")).content == first.content
    served = (await store.admin.audit()).served
    assert (served.differences, served.not_compared) == ([], {})
    assert served.equal >= 4


async def test_an_input_that_history_did_not_give_at_the_computation_is_listed(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare(store, user, clock)

    @feature(entity=user, ttl="1h")
    async def kept(user_id: str) -> str:
        return f"kept {await store.get_feature('total', user_id)}"

    @context(store)
    async def page(user_id: str) -> list[ContextItem]:
        return [ContextItem(await store.get_feature("kept", user_id))]

    await buy(store, clock)
    await page("u1")
    clock.advance("5m")
    await page("u1")
    engine = await runtime_of(store).open()
    total = engine.registry.feature("total")
    # As if online values had missed a write, which was known to history before the computation.
    micros = clock.micros() - 331_000_000
    cell = make_cell(total, 77.0, micros, micros)
    await engine.backends.offline.append([make_change(total, "u1", cell, "import", online=False)])
    differences = (await store.admin.audit()).served.differences
    assert {(each.recorded, each.history) for each in differences} == {(4.0, 77.0)}
    assert len(differences) == 2


def priced(settings: Settings, clock: ManualClock, *, euros: bool) -> FeatureStore:
    """Return a store of prices in cents or in euros, and of values that are computed from them."""
    store = FeatureStore(settings=settings, clock=clock)

    @store.entity
    class User:
        user_id: str

    def price(user_id: str, event: ServiceEvent) -> object:
        return event.payload["cents"] / 100 if euros else event.payload["cents"]

    price.__annotations__["return"] = float if euros else int
    store.feature(User, trigger="buy", convert=to_euros if euros else None)(price)

    @store.feature(User, template="costs {price}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @store.feature(User, derived=True)
    async def double(user_id: str) -> float:
        return 2 * float(await store.get_feature("price", user_id))

    @store.feature(User, derived=True)
    async def deep(user_id: str) -> str:
        return f"twice {await store.get_feature('double', user_id)}"

    @store.feature(User, ttl="1h")
    async def kept(user_id: str) -> str:
        return f"kept {await store.get_feature('double', user_id)}"

    @store.context()
    async def page(user_id: str, name: str) -> list[ContextItem]:
        return [ContextItem(str(await store.get_feature(name, user_id)))]

    return store


def to_euros(cents: int) -> float:
    return cents / 100


@pytest.mark.parametrize(
    ("name", "equal", "unreadable"),
    [("price", 0, 1), ("line", 0, 2), ("double", 0, 2), ("deep", 0, 3), ("kept", 1, 2)],
)
async def test_values_computed_from_one_of_a_type_that_has_changed_since_are_not_compared(
    settings: Settings, clock: ManualClock, name: str, equal: int, unreadable: int
) -> None:
    async with priced(settings, clock, euros=False) as store:
        await store.publish("buy", "u1", {"cents": 1250})
        await store.drain()
        clock.advance("1m")
        await store.assemble("page", {"user_id": "u1", "name": name})
        clock.advance("1m")
    async with priced(settings, clock, euros=True) as store:
        await store.drain()
        clock.advance("1m")
        served = (await store.admin.audit()).served
        assert served.differences == []
        assert served.not_compared == {"of a type that has changed since": unreadable}
        assert served.equal == equal
        await store.publish("buy", "u1", {"cents": 300})
        await store.drain()
        clock.advance("2h")
        await store.assemble("page", {"user_id": "u1", "name": name})
        served = (await store.admin.audit()).served
        assert served.differences == []
        assert served.not_compared == {"of a type that has changed since": unreadable}
        assert served.equal == 2 * equal + unreadable
