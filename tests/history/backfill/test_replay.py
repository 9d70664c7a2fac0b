"""Replays: past events through the present handler give the values that they would have given."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from headwater import Chunk, FeatureStore, ServiceEvent, feature
from headwater.backends.runners.inline import InlineRunner
from headwater.declarations.definitions import definition_of
from headwater.errors import BackfillRefusedError, ReplayWriteError
from headwater.history.backfill.replay import (
    check_replayable,
    last_cells,
    replay,
    replay_failures,
    replay_progress,
)
from headwater.model.backfills import BackfillProgress
from headwater.testing import ManualClock
from tests.history.backfill.support import (
    declared,
    history,
    job_of,
    replay_all,
    values_of,
)


def declare_total(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> float:
        before = await store.get_feature("total", user_id) or 0.0
        return float(before + event.payload["amount"])


@pytest.mark.both_environments
async def test_a_replay_gives_the_values_of_a_feature_that_was_there_from_the_first_day(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    declare_total(store, user)
    for number in range(40):
        await store.publish("buy", f"u{number % 7}", {"amount": float(number)})
    await store.drain()
    job = await job_of(store, "total", tmp_path, files=2)
    shown: list[BackfillProgress] = []
    report = await replay(job, InlineRunner(), shown.append)
    assert (report.events, report.values, report.failures) == (40, 40, 0)
    assert shown[-1] == BackfillProgress("replay", 40, 40, 0.0)
    assert replay_progress(job) == 40
    assert await replay_all(store, job) == report
    assert await history(store, "total@2") == await history(store, "total")
    cells = {i: cell for page in last_cells(job) for i, cell in page.items()}
    assert {i: float(bytes(cell["total@2"].value)) for i, cell in cells.items()} == {
        f"u{i}": await store.get_feature("total", f"u{i}") for i in range(7)
    }


def declare_seen(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    async def earlier(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["number"])

    @feature(entity=user, template="number {earlier}")
    def described(user_id: str) -> str:
        return ""

    @feature(entity=user, derived=True)
    async def doubled(user_id: str) -> int:
        return 2 * (await store.get_feature("earlier", user_id) or 0)

    @feature(entity=user, trigger="buy")
    async def seen(user_id: str, event: ServiceEvent) -> list[object]:
        names = ["earlier", "later", "plan", "described", "doubled"]
        row = (await store.get_features(names, [user_id]))[user_id]
        other = await store.get_feature("plan", "boss")
        return [row[name] for name in names] + [other]

    @feature(entity=user, trigger="buy")
    def later(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["number"])

    @feature(entity=user, trigger="upgrade", ttl="40s")
    def plan(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["plan"])


async def test_a_process_that_has_loaded_other_code_replays_nothing(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    declare_total(store, user)
    await store.publish("buy", "u1", {"amount": 1.0})
    own = definition_of(declared(store, "total"))
    job = await job_of(store, "total", tmp_path, definition="of another file")
    with pytest.raises(BackfillRefusedError, match=r"is not the code .* backfill cancel total"):
        await replay(job, InlineRunner())
    report = await replay(msgspec.structs.replace(job, definition=own), InlineRunner())
    assert report.events == 1


@pytest.mark.both_environments
async def test_handlers_see_other_features_as_they_were(
    store: FeatureStore, user: type, tmp_path: Path, clock: ManualClock
) -> None:
    declare_seen(store, user)
    for number in range(4):
        await store.publish("buy", "ada", {"number": number})
        await store.publish("buy", "bob", {"number": 10 + number})
        await store.drain()
        clock.advance("10s")
        for user_id in ("ada", "boss")[: number + 1]:
            await store.publish("upgrade", user_id, {"plan": f"{user_id} {number}"})
        await store.drain()
        clock.advance("30s" if number == 1 else "10s")
    live = await values_of(store, "seen")
    assert live["ada"][:3] == [
        [0, None, None, "number 0", 0, None],
        [1, 0, "ada 0", "number 1", 2, None],
        [2, 1, "ada 1", "number 2", 4, "boss 1"],
    ]
    await replay_all(store, await job_of(store, "seen", tmp_path))
    assert await values_of(store, "seen@2") == live


async def test_values_of_the_future_are_not_seen_even_in_ties(
    store: FeatureStore, user: type, tmp_path: Path, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    def earlier(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["number"])

    @feature(entity=user, trigger="buy")
    def seen(user_id: str, event: ServiceEvent) -> list[int | None]:
        return [store.sync.get_feature(name, user_id) for name in ("earlier", "later")]

    @feature(entity=user, trigger="buy")
    def later(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["number"])

    moment = clock.now()
    for number, late in enumerate([0, 0, 10, 5, 0]):  # the late ones are about the same moment
        at = moment - timedelta(seconds=late)
        await store.publish("buy", "ada", {"number": number}, timestamp=at)
    await store.drain()
    live = await values_of(store, "seen")
    assert live["ada"] == [[0, None], [1, 0], [2, 1], [3, 2], [4, 3]]
    await replay_all(store, await job_of(store, "seen", tmp_path))
    assert await values_of(store, "seen@2") == live


async def test_failed_events_are_listed_and_the_others_count(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    attempts: list[int] = []

    @feature(entity=user, trigger="buy", max_retries=2)
    async def total(user_id: str, event: ServiceEvent) -> int:
        attempts.append(event.payload["number"])
        if event.payload["number"] == 1:
            raise ValueError("no such price")
        return int(await store.get_feature("total", user_id) or 0) + 1

    for number in range(3):
        await store.publish("buy", "ada", {"number": number})
    job = await job_of(store, "total", tmp_path)
    attempts.clear()
    report = await replay_all(store, job)
    assert (report.events, report.values, report.failures) == (3, 2, 1)
    (failure,) = replay_failures(job)
    assert (failure.event.payload, failure.attempts) == ({"number": 1}, 3)
    assert "no such price" in failure.error
    assert attempts == [0, 1, 1, 1, 2]
    assert await values_of(store, "total@2") == {"ada": [1, 2]}


async def test_values_set_on_other_features_are_seen_and_not_stored(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    @feature(entity=user, trigger="other")
    def note(user_id: str, event: ServiceEvent) -> str:
        return "noted"

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> list[str | None]:
        before = await store.get_feature("note", user_id)
        await store.set_feature("note", user_id, "set")
        await store.set_feature("note", "someone else", "set")
        return [before, await store.get_feature("note", user_id)]

    await store.publish("buy", "ada")
    await store.publish("buy", "ada")
    job = await job_of(store, "total", tmp_path)
    before = await history(store, "note")
    report = await replay_all(store, job)
    assert report.unstored == {"note": 4}
    assert await values_of(store, "total@2") == await values_of(store, "total")
    assert await history(store, "note") == before


async def test_verbs_with_effects_end_the_replay(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    @feature(entity=user, trigger="buy")
    async def publishes(user_id: str, event: ServiceEvent) -> int:
        try:
            await store.publish("bought", "ada")
        except ReplayWriteError:
            return 0
        return 1

    @feature(entity=user, trigger="buy")
    async def indexes(user_id: str, event: ServiceEvent) -> int:
        await store.index("docs", "d", "text")
        return 1

    await store.publish("buy", "ada")
    for name, verb in {"publishes": "publish", "indexes": "index"}.items():
        job = await job_of(store, name, tmp_path / name)
        with pytest.raises(ReplayWriteError, match=f"^{verb} .*{name}' with repeatable=True"):
            await replay(job, InlineRunner())


async def test_a_repeatable_handler_has_its_effects_again(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    @feature(entity=user, trigger="buy", repeatable=True)
    async def total(user_id: str, event: ServiceEvent) -> int:
        await store.publish("bought", user_id)
        return 1

    @feature(entity=user, trigger="bought")
    async def count(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("count", user_id) or 0) + 1

    await store.publish("buy", "ada")
    await replay_all(store, await job_of(store, "total", tmp_path))
    await store.drain()
    assert await store.get_feature("count", "ada") == 2


def declare_readers_of_the_present(store: FeatureStore, user: type) -> None:
    @feature(entity=user)
    def on_demand(user_id: str) -> int:
        return 1

    @store.retriever(index="docs")
    def found(question: str) -> list[Chunk]:  # type: ignore[empty-body]
        ...

    @store.context()
    async def support(user_id: str) -> list[str]:
        return []

    @feature(entity=user, trigger="buy")
    async def searches(user_id: str, event: ServiceEvent) -> int:
        return len(await store.search("docs", "question"))

    @feature(entity=user, trigger="buy")
    async def retrieves(user_id: str, event: ServiceEvent) -> int:
        return len(await found("question"))

    @feature(entity=user, trigger="buy")
    async def assembles(user_id: str, event: ServiceEvent) -> str:
        return (await support(user_id)).content

    @feature(entity=user, trigger="buy")
    async def computes(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("on_demand", user_id))


def declare_readers_of_others(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    async def looks_back(user_id: str, event: ServiceEvent) -> int:
        return len(await store.get_feature_history("looks_back", user_id))

    @feature(entity=user, trigger="buy")
    async def compares(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("compares", "bob") or 0)

    @feature(entity=user, trigger="buy")
    async def spreads(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("spreads", "bob", 1)
        return 1


async def test_reads_that_would_be_of_the_present_are_refused_by_name(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    declare_readers_of_the_present(store, user)
    declare_readers_of_others(store, user)
    await store.publish("buy", "ada")
    for name, problem in {
        "searches": "calls search, and it would find the documents of today",
        "retrieves": "calls retrieve",
        "assembles": "calls assemble",
        "looks_back": "calls get_feature_history, and it would read what is stored today",
        "computes": "reads 'on_demand'.*derived=True",
        "compares": "reads the feature of another User .'bob'.",
        "spreads": "sets the feature of another User .'bob'.",
    }.items():
        job = await job_of(store, name, tmp_path / name)
        with pytest.raises(BackfillRefusedError, match=f"'{name}' cannot be.*{problem}"):
            await replay(job, InlineRunner())


def test_features_without_events_or_values_are_refused(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    def effect(user_id: str, event: ServiceEvent) -> None: ...

    @feature(entity=user, ttl="1h")
    def computed(user_id: str) -> int:
        return 1

    with pytest.raises(BackfillRefusedError, match="only sets other features; move each"):
        check_replayable(declared(store, "effect"))
    with pytest.raises(BackfillRefusedError, match="has no trigger"):
        check_replayable(declared(store, "computed"))


@pytest.mark.both_environments
async def test_with_since_values_continue_from_the_version_that_is_served(
    store: FeatureStore, user: type, tmp_path: Path, clock: ManualClock
) -> None:
    declare_total(store, user)
    await store.publish("buy", "ada", {"amount": 1.0})
    await store.publish("buy", "bob", {"amount": 2.0})
    clock.advance("1h")
    since = clock.now()
    await store.publish("buy", "ada", {"amount": 4.0})
    await store.publish("buy", "eve", {"amount": 8.0})
    await store.drain()
    job = await job_of(store, "total", tmp_path, since=since)
    await replay_all(store, job)
    assert await values_of(store, "total@2") == {"ada": [5.0], "eve": [8.0]}


# Only the embedded store accepts events by the test's clock.
@pytest.mark.parametrize("settings", ["embedded"], indirect=True)
async def test_a_value_that_had_expired_is_not_served_and_passes_an_audit(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy", ttl="1h")
    async def recent(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("recent", user_id) or 0) + 1

    for user_id in ("ada", "ada", "bob"):
        await store.publish("buy", user_id)
        await store.drain()
        clock.advance("40m")
    expected = {"ada": {"recent": None}, "bob": {"recent": 1}}
    assert await store.get_features(["recent"], ["ada", "bob"]) == expected
    await store.backfills.run("recent", switch=True)
    assert await store.get_features(["recent"], ["ada", "bob"]) == expected
    assert (await store.admin.audit()).differences == []


async def test_with_until_values_are_added_before_the_first_one(
    store: FeatureStore, user: type, tmp_path: Path, clock: ManualClock
) -> None:
    for number, user_id in enumerate(["ada", "bob", "ada"]):
        await store.publish("buy", user_id, {"amount": 2.0**number})
        clock.advance("1h")
    await store.drain()
    declare_total(store, user)
    await store.publish("buy", "ada", {"amount": 8.0})
    await store.drain()
    job = await job_of(store, "total", tmp_path, until=clock.now())
    job = msgspec.structs.replace(job, series="total")
    assert (await replay_all(store, job)).values == 3
    # In its order in time: the value that was there counts the events that it has seen.
    found = await history(store, "total")
    assert [(i, value) for i, value, *_ in found] == [
        ("ada", "1.0"),
        ("ada", "5.0"),
        ("ada", "8.0"),
        ("bob", "2.0"),
    ]
    assert await store.get_features(["total"], ["ada", "bob"]) == {
        "ada": {"total": 8.0},
        "bob": {"total": None},
    }


@pytest.mark.both_environments
async def test_late_events_count_once_with_since_and_until(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_total(store, user)
    hour = timedelta(hours=1)
    noon = clock.now() - 3 * hour
    for amount, at in ((1.0, noon), (2.0, noon + 2 * hour), (4.0, noon)):
        await store.publish("buy", "ada", {"amount": amount}, timestamp=at)
    await store.drain()
    await store.backfills.run("total", since=noon + hour, switch=True)
    # The last event is late, and its value is of the time of the value that it replaces.
    expected = [(7.0, noon + 2 * hour), (3.0, noon + 2 * hour), (1.0, noon)]
    past = await store.get_feature_history("total", "ada")
    assert [(each.value, each.as_of) for each in past] == expected

    @feature(entity=user, trigger="buy")
    async def later(user_id: str, event: ServiceEvent) -> float:
        return float((await store.get_feature("later", user_id) or 0.0) + event.payload["amount"])

    await store.backfills.run("later", until=noon + hour)
    past = await store.get_feature_history("later", "ada")
    assert [(each.value, each.as_of) for each in past] == expected[2:]
