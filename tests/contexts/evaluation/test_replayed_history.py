"""Values of other features, replayed from stored events, against a world that lived with them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.contexts.evaluation.entity_replay import END, handled_moments
from headwater.contexts.evaluation.replayed_history import ReplayedHistory
from headwater.errors import ReplayWriteError
from headwater.ports import PastEvent, Point
from headwater.testing import ManualClock
from tests.contexts.evaluation.worlds import World, publish_to, replayed, values_at

pytestmark = pytest.mark.both_environments


NAMES = ["spent", "mean", "latest", "tier", "rank", "spend", "busy", "friend", "flaky", "graded"]
READ = [
    *("spent", "mean", "latest", "tier", "busy", "friend", "flaky", "graded", "risk"),
    *("spend_sum_1h", "spend_count_7d", "spend_last3_7d"),
]
IDS = ["u1", "u2", "u3"]


def declare(store: FeatureStore, factor: int) -> None:
    """Declare features that read and write in many ways; the edit is another factor."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger=["order", "visit"], default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    @feature(entity=User, trigger="order", default=0)
    async def spent(user_id: str, event: ServiceEvent) -> int:
        before = await store.get_feature("spent", user_id)
        return int(before) + factor * int(event.payload["amount"])

    @feature(entity=User, trigger="order", default=0)
    def mean(user_id: str, event: ServiceEvent) -> int:
        spent, visits = (store.sync.get_feature(name, user_id) for name in ("spent", "visits"))
        return int(spent) * 100 + int(visits)

    declare_writers(store, User, factor)
    declare_readers(store, User, factor)


def declare_writers(store: FeatureStore, user: type, factor: int) -> None:
    """Declare features that write other features, late values and contributions."""

    @feature(entity=user, trigger="order", order="event_time")
    async def latest(user_id: str, event: ServiceEvent) -> int:
        return factor * int(event.payload["amount"])

    tier = store.stored_feature("tier", str, entity=user, default="none")

    @feature(entity=user, trigger="order")
    async def rank(user_id: str, event: ServiceEvent) -> None:
        if event.payload["amount"] % 2 == factor % 2:
            await tier.set(user_id, f"{await tier.get(user_id)}{event.payload['amount']}"[-9:])

    @feature(
        entity=user, trigger="order", window=["1h", "7d"], aggregate=["sum", "count", "last(3)"]
    )
    def spend(user_id: str, event: ServiceEvent) -> float | None:
        amount = float(event.payload["amount"])
        return None if amount == factor else factor * amount


def declare_readers(store: FeatureStore, user: type, factor: int) -> None:
    """Declare features that read windows, other entities and computed features, or fail."""

    async def read(names: list[str], user_id: str) -> dict[str, Any]:
        return (await store.get_features(names, [user_id]))[user_id]

    @feature(entity=user, trigger=["visit", "order"])
    async def busy(user_id: str, event: ServiceEvent) -> str:
        values = await read(["spend_sum_1h", "spend_count_7d"], user_id)
        return f"{values['spend_sum_1h']} {values['spend_count_7d']} {store.clock.now():%H:%M:%S}"

    @feature(entity=user, trigger="poke", default="")
    async def friend(user_id: str, event: ServiceEvent) -> str:
        other = str(event.payload["of"])
        names = ["spent", "visits", "friend", "spend_count_7d", "risk"]
        values = await read(names, other)
        return f"{await store.get_feature('tier', user_id)} {[*values.values()]}"[-60:]

    @feature(entity=user, trigger="order", max_retries=0, default=0)
    async def flaky(user_id: str, event: ServiceEvent) -> int:
        if event.payload["amount"] % 3 == factor % 3:
            raise ValueError("no")
        return int(await store.get_feature("flaky", user_id)) + 1

    @feature(entity=user)
    async def risk(user_id: str) -> str:
        values = await read(["spent", "visits"], user_id)
        return f"risk {[*values.values()]}"

    @feature(entity=user, trigger="visit", ttl="90s", default="")
    async def graded(user_id: str, event: ServiceEvent) -> str:
        before = await store.get_feature("graded", user_id)
        return f"{await store.get_feature('risk', user_id)} {before}"[:50]


async def live_at_random(world: World, seed: int, rounds: int = 8) -> None:
    """Let random events and writes happen."""
    chance = random.Random(seed)
    for _ in range(rounds):
        for _ in range(chance.randrange(1, 4)):
            late = chance.choice([0, 0, 0, 5, 4_000, 90_000])
            kind, of = chance.choice(["order", "order", "visit"]), chance.choice(IDS)
            payload = {"amount": chance.randrange(9)}
            await world.publish((kind, of, payload), late=timedelta(seconds=late))
        if chance.random() < 0.8:
            await world.drain(READ, IDS)
        if chance.random() < 0.5:
            await world.drain(READ, IDS)  # or the order of two entities would be by chance
            one, other = chance.sample(IDS, 2)
            await world.publish(("poke", one, {"of": other}))
            await world.drain(READ, IDS)
        if chance.random() < 0.3:
            name, value = chance.choice([("spent", 1_000), ("tier", "set"), ("latest", 7)])
            await world.set(name, chance.choice(IDS), value)
        world.wait(timedelta(seconds=chance.choice([0, 1, 60, 3_000])))
    await world.drain(READ, IDS)


@pytest.mark.parametrize("seed", range(4))
async def test_replayed_features_have_the_values_of_a_world_that_lived_with_them(
    world: World, seed: int
) -> None:
    for store, factor in ((world.former, 1), (world.truth, 2), (world.edited, 2)):
        declare(store, factor)
    await live_at_random(world, seed)
    replay = await world.assert_same(NAMES, NAMES, READ, IDS)
    for name in NAMES:
        assert [replay.history.notes(name, of) for of in IDS] == [[], [], []]


async def start(world: World, names: list[str], former: list[str]) -> ReplayedHistory:
    """Replay some features of the edited file."""
    return (await replayed(world.former, world.edited, names, former)).history


def users(*stores: FeatureStore) -> list[type]:
    """Declare users in stores."""
    kinds: list[type] = []
    for store in stores:

        @entity(store)
        class User:
            user_id: str

        kinds.append(User)
    return kinds


async def known(history: ReplayedHistory, feature: str, of: str, at: datetime) -> Any:
    """Return a value that was known at a moment."""
    [[past]] = await history.as_of([f"{feature}~eval"], [Point(of, at)], known=True)
    return None if past is None else msgspec.json.decode(past.value)


async def test_a_new_feature_of_handled_events_is_exact_and_of_others_is_noted(
    world: World, clock: ManualClock
) -> None:
    former, edited = users(world.former, world.edited)

    @feature(entity=former, trigger="order")
    async def orders(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=edited, trigger=["order", "idle"], default=0)
    async def seen(user_id: str, event: ServiceEvent) -> int:
        return int(await world.edited.get_feature("seen", user_id)) + 1

    began = clock.now()
    await publish_to(world.former, "order", "u1")
    clock.advance("1m")  # a worker handles it later
    await world.former.drain()
    first = clock.now()
    clock.advance("1m")
    history = await start(world, ["seen"], [])
    await history.preload({"User": ["u1", "u2"]}, clock.now())
    assert await known(history, "seen", "u1", first - timedelta(seconds=1)) is None
    assert await known(history, "seen", "u1", first) == 1
    assert history.notes("seen", "u1", clock.now()) == []
    # No feature kept a value of this one, so it may have been handled at any time.
    await publish_to(world.former, "idle", "u2")
    history.release()
    assert await known(history, "seen", "u2", began + timedelta(days=9_999)) == 1
    (note,) = history.notes("seen", "u2", began + timedelta(days=9_999))
    assert "not known when a live worker handled an event" in note
    assert history.notes("seen", "u2", began - timedelta(days=1)) == []
    assert history.notes("seen", "u1") == []


async def test_an_event_that_fails_leaves_the_value_until_it_is_redriven(
    world: World, clock: ManualClock
) -> None:
    is_broken = True
    for store in world.live:
        (kind,) = users(store)

        @feature(entity=kind, trigger="order")
        async def last(user_id: str, event: ServiceEvent) -> int:
            return 1

        @feature(entity=kind, trigger="order", max_retries=0, default=0)
        async def orders(user_id: str, event: ServiceEvent) -> int:
            if event.payload["amount"] == 13 and is_broken:
                raise ValueError("no")
            return int(event.payload["amount"])

    (edited,) = users(world.edited)

    @feature(entity=edited, trigger="order", max_retries=0, default=0, name="orders")
    async def _(user_id: str, event: ServiceEvent) -> int:
        if event.payload["amount"] == 13 and world.edited.clock.now() < redriven:
            raise ValueError("no")
        return int(event.payload["amount"])

    await world.publish(("order", "u1", {"amount": 1}))
    await world.drain(["orders"], ["u1"])
    await world.publish(("order", "u1", {"amount": 13}))
    await world.drain(["orders"], ["u1"])
    failed, is_broken = clock.now(), False
    clock.advance("1m")
    redriven = clock.now()
    for store in world.live:
        (letter,) = await store.dead_letters.list()
        await store.dead_letters.redrive(letter.id)
    await world.drain(["orders"], ["u1"])
    replay = await world.assert_same(["orders"], ["orders"], ["orders"], ["u1"])
    assert world.seen[max(world.seen)] == {"orders": 13}
    history = replay.history
    assert not history.failed_at("orders", "u1", failed - timedelta(seconds=30))
    assert history.failed_at("orders", "u1", failed)
    assert not history.failed_at("orders", "u1", clock.now())
    assert history.notes("orders", "u1") == []


async def test_what_a_handler_does_to_the_outside_is_dropped_or_noted(
    world: World, clock: ManualClock
) -> None:
    former, edited = users(world.former, world.edited)

    @feature(entity=former, trigger="order")
    async def orders(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=edited, trigger="order")
    async def loud(user_id: str, event: ServiceEvent) -> int:
        await world.edited.bus.publish(ServiceEvent("order", "u9", {}))
        return 1

    @feature(entity=edited, trigger="order")
    async def curious(user_id: str, event: ServiceEvent) -> int:
        return len(await world.edited.get_feature_history("loud", user_id))

    @feature(entity=edited, trigger="order", default=0)
    async def meddling(user_id: str, event: ServiceEvent) -> int:
        await world.edited.set_feature("loud", "u2", 7)
        return 1

    @feature(entity=edited, trigger="order", default=0)
    async def later(user_id: str, event: ServiceEvent) -> int:
        return int(await world.edited.get_feature("meddling", user_id))

    await publish_to(world.former, "order", "u1")
    await world.former.drain()
    names = ["loud", "curious", "meddling", "later"]
    history = await start(world, names, [])
    await history.preload({"User": ["u1", "u2"]}, clock.now())
    found = {name: await known(history, name, "u1", clock.now()) for name in names}
    assert found == {"loud": 1, "curious": None, "meddling": 1, "later": 1}
    assert await known(history, "loud", "u2", clock.now()) == 7
    notes = {name: history.notes(name, "u1", clock.now()) for name in names}
    assert notes["loud"] == []
    assert "get_feature_history" in notes["curious"][0]
    assert "sets loud of another User" in notes["meddling"][0]
    assert notes["later"] == notes["meddling"]
    assert history.notes("loud", "u2") != []
    [events] = await world.former_events(["u9"], ["order"])
    assert events == []
    with pytest.raises(ReplayWriteError):
        await history.drop("orders")


async def test_values_of_before_an_erasure_do_not_count(world: World, clock: ManualClock) -> None:
    for store in (world.former, world.truth, world.edited):
        declare(store, 1 if store is world.former else 2)
    await world.publish(("order", "u1", {"amount": 3}), ("order", "u2", {"amount": 4}))
    await world.drain(READ, ["u2"])
    for store in world.live:
        await store.admin.forget("User", "u1", reason="asked", allow_return=True)
    clock.advance("1m")
    await world.publish(("order", "u1", {"amount": 5}))
    await world.drain(READ, ["u1", "u2"])
    await world.assert_same(NAMES, NAMES, READ, ["u1", "u2"])


async def test_reads_of_many_contexts_share_few_calls_of_the_history(
    world: World, clock: ManualClock
) -> None:
    for store in (world.former, world.edited):
        declare(store, 1)
    ids = [f"u{number}" for number in range(40)]
    events = [("order", of, {"amount": 2}) for of in ids]
    await world.publish(*events)
    await world.former.drain()
    replay = await replayed(world.former, world.edited, ["spent"], ["spent"])
    calls = Counter[str]()

    def counted(name: str, call: Any) -> Any:
        async def run(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return await call(*arguments, **named)

        return run

    real = replay.history._lookups._offline  # noqa: SLF001
    for name in ("as_of", "rows", "events_of"):
        setattr(real, name, counted(name, getattr(real, name)))
    names = ["spent", "visits", "spend_sum_1h"]
    seen = await asyncio.gather(*(values_at(replay.engine, names, of, clock.now()) for of in ids))
    assert seen == [{"spent": 2, "visits": 1, "spend_sum_1h": 2.0}] * 40
    # 120 reads of values; how many wait for the same call is a matter of the machine's speed.
    assert calls["as_of"] <= 12
    assert calls["rows"] <= 12


async def test_entities_that_read_each_other_are_replayed_in_turns(
    world: World, clock: ManualClock
) -> None:
    ids = [f"u{number}" for number in range(6)]
    for store in (world.former, world.truth, world.edited):
        declare_ring(store, 1 if store is world.former else 3)
    for number in range(18):
        of = ids[number * 5 % 6]
        await world.publish(("pass", of, {"to": ids[(number * 5 + number) % 6]}))
        for store in world.live:
            await store.drain()
        clock.advance("1s")
    await world.see(["ball"], ids)
    replay = await world.assert_same(["ball"], ["ball"], ["ball"], ids)
    history = replay.history
    history.release()
    async with asyncio.timeout(60):
        await history.preload({"User": ids}, clock.now())
    found = [await known(history, "ball", of, clock.now()) for of in ids]
    assert found == [world.seen[max(world.seen)[0], of]["ball"] for of in ids]
    assert [history.notes("ball", of) for of in ids] == [[]] * 6


def declare_ring(store: FeatureStore, factor: int) -> None:
    """Declare a feature that reads that of another user."""
    (kind,) = users(store)

    @feature(entity=kind, trigger="pass", default=1)
    async def ball(user_id: str, event: ServiceEvent) -> int:
        await asyncio.sleep(0)
        other = int(await store.get_feature("ball", str(event.payload["to"])))
        await asyncio.sleep(0)
        return (int(await store.get_feature("ball", user_id)) * factor + other) % 10_007


async def test_entities_of_one_id_and_imported_values_are_replayed(
    world: World, clock: ManualClock, tmp_path: Path
) -> None:
    for store in (world.former, world.truth, world.edited):
        declare_two_kinds(store, 1 if store is world.former else 2)
    file, old = tmp_path / "totals.csv", clock.now() - timedelta(days=2)
    file.write_text(f"user_id,timestamp,total\n7,{old.isoformat()},50\n")
    for store in world.live:
        await store.history.import_file(file, ["total"])
        await store.admin.rebuild()
    clock.advance("1m")
    for _ in range(3):
        await world.publish(("order", "7", {"amount": 5}), ("order", "8", {"amount": 1}))
        for store in world.live:
            await store.drain()
        await world.see(["total"], ["7", "8"])
    replay = await world.assert_same(
        ["total", "points"], ["total", "points"], ["total"], ["7", "8"]
    )
    truth = await world.truth.get_features(["points"], ["7", "8"])
    for of in ("7", "8"):
        now = await values_at(replay.engine, ["points"], of, clock.now())
        assert now == truth[of]
        assert replay.history.notes("total", of) == []


def declare_two_kinds(store: FeatureStore, factor: int) -> None:
    """Declare entities that events with one id are about."""
    (kind,) = users(store)

    @entity(store)
    class Account:
        account_id: str

    @feature(entity=kind, trigger="order", default=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        amount = factor * int(event.payload["amount"])
        return int(await store.get_feature("total", user_id)) + amount

    @feature(entity=Account, trigger="order", default=0)
    async def points(account_id: str, event: ServiceEvent) -> int:
        total = int(await store.get_feature("total", account_id))
        return int(await store.get_feature("points", account_id)) + 10 * total


@pytest.mark.parametrize(
    ("events", "handled"),
    [
        ([(1, 5), (2, 9)], [(5, 5), (9, 9)]),
        # A stopped clock: values of one moment are written a microsecond after each other.
        ([(1, 5), (1, 6), (1, 7), (1, 5)], [(5, 5)] * 4),
        ([(1, 5), (2, 8), (3, 9)], [(5, 5), (8, 8), (8, 8)]),
        # Without a value, after it was accepted and between its neighbours.
        ([(1, 5), (3, None), (2, 9)], [(5, 5), (5, 9), (9, 9)]),
        ([(1, 5), (7, None), (8, 9)], [(5, 5), (7, 9), (9, 9)]),
        ([(1, 5), (99, None), (2, 9)], [(5, 5), (9, 9), (9, 9)]),
        ([(3, None)], [(3, END)]),
        ([], []),
    ],
)
def test_events_were_handled_when_their_first_values_were_written(
    events: list[tuple[int, int | None]], handled: list[tuple[int, int]]
) -> None:
    pasts = [
        PastEvent(str(place), ServiceEvent("e", "u1"), received_at=received, written_at=written)
        for place, (received, written) in enumerate(events)
    ]
    assert handled_moments(pasts) == handled


async def test_pruned_events_are_noted_and_their_values_stay(
    world: World, clock: ManualClock
) -> None:
    for store in (world.former, world.edited):
        declare(store, 1 if store is world.former else 2)
    await world.former.bus.publish(order("u1", 5, clock))
    await world.former.drain()
    clock.advance("60d")
    await world.former.admin.prune(events="30d")
    await world.former.bus.publish_many([order("u1", 3, clock), order("u2", 3, clock)])
    await world.former.drain()
    history = await start(world, ["spent"], ["spent"])
    await history.preload({"User": ["u1", "u2"]}, clock.now())
    assert await known(history, "spent", "u1", clock.now()) == 5 + 2 * 3
    assert await known(history, "spent", "u2", clock.now()) == 2 * 3
    (note,) = history.notes("spent", "u1", clock.now())
    assert "were pruned" in note
    assert history.notes("spent", "u2", clock.now()) == []


def order(user_id: str, amount: int, clock: ManualClock) -> ServiceEvent:
    """Return an event of the time of the clock."""
    return ServiceEvent("order", user_id, {"amount": amount}, clock.now())
