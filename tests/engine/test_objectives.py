"""Objectives: what counts as met and missed, burn rates, and what the overview says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.engine import objectives
from headwater.engine.last_hour import LastHour
from headwater.engine.objectives import ObjectiveCounts, ObjectiveKey
from headwater.errors import (
    BackendUnavailableError,
    ConfigError,
    FreshnessSLAError,
    InvalidInputError,
)
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

OBJECTIVES = {
    "features": {
        "spent": {"freshness": "5s", "latency": "1h", "target": 0.9},
        "rank": {"freshness": "5s"},
        "gone": {"latency": "1s"},
    },
    "contexts": {
        "prompt": {"freshness": "10m", "latency": "1h"},
        "note": {"freshness": "10m"},
    },
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count from zero, and leave nothing: the counts are those of the process."""
    monkeypatch.setattr(objectives, "_recent", {})
    monkeypatch.setattr(objectives.RESULTS, "_counts", Counter())
    yield
    for gauge in (objectives.RECENT, objectives.TARGETS):
        gauge.clear()


@pytest.fixture
def shop(settings: Settings, clock: ManualClock) -> FeatureStore:
    store = FeatureStore(settings=settings.replace(objectives=OBJECTIVES), clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=0, max_retries=0)
    async def spent(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=User, refresh="10s", materialize=True)
    async def rank(user_id: str) -> int:
        return 1

    @context(store, freshness_sla="1h", freshness_strict=True)
    async def prompt(user_id: str) -> str:
        return f"{await store.get_feature('spent', user_id)}"

    @context(store)
    async def note(user_id: str) -> str:
        return f"{await store.get_feature('spent', user_id)}"

    return store


def counted(kind: str, name: str, objective: str) -> tuple[int, int]:
    """Return how many were good and bad in the last hour."""
    recent = objectives._recent[ObjectiveKey(kind, name, objective)]  # type: ignore[arg-type]  # noqa: SLF001
    return recent.count(3_600, 0), recent.count(3_600, 1)


async def test_a_value_that_becomes_visible_late_or_fails_misses_its_freshness(
    shop: FeatureStore, clock: ManualClock
) -> None:
    async with shop:
        await shop.publish("buy", "u1", {"amount": 1})
        await shop.drain()
        assert counted("feature", "spent", "freshness") == (1, 0)
        await shop.publish("buy", "u1", {"amount": 1}, timestamp=clock.now() - timedelta(seconds=6))
        await shop.publish("buy", "u1", {"amount": "none"})
        await shop.drain()
        assert counted("feature", "spent", "freshness") == (1, 2)
        assert counted("feature", "spent", "latency") == (2, 1)


async def test_a_version_that_is_served_under_the_name_can_miss_the_freshness(
    shop: FeatureStore, clock: ManualClock
) -> None:
    async with shop:
        await shop.publish("buy", "u1", {"amount": 1})
        await shop.drain()
        await shop.backfills.run("spent", switch=True)
        clock.advance("1h")  # until then the first version is kept fresh beside it
        before = counted("feature", "spent", "freshness")
        await shop.publish("buy", "u1", {"amount": "none"})
        await shop.drain()
        assert counted("feature", "spent", "freshness") == (before[0], before[1] + 1)
        await shop.publish("buy", "u1", {"amount": 2})
        await shop.drain()
        assert counted("feature", "spent", "freshness") == (before[0] + 1, before[1] + 1)


async def test_an_old_value_and_a_refusal_miss_the_freshness_of_a_context(
    shop: FeatureStore, clock: ManualClock
) -> None:
    async with shop:
        await shop.publish("buy", "u1", {"amount": 1})
        await shop.drain()
        await shop.assemble("prompt", {"user_id": "u1"})
        assert counted("context", "prompt", "freshness") == (1, 0)
        clock.advance("11m")
        await shop.assemble("prompt", {"user_id": "u1"})
        assert counted("context", "prompt", "freshness") == (1, 1)
        clock.advance("2h")
        with pytest.raises(FreshnessSLAError):
            await shop.assemble("prompt", {"user_id": "u1"})
        assert counted("context", "prompt", "freshness") == (1, 2)
        assert counted("context", "prompt", "latency") == (3, 0)


async def test_a_context_of_a_default_misses_its_freshness(shop: FeatureStore) -> None:
    async with shop:
        await shop.assemble("note", {"user_id": "u1"})
        assert counted("context", "note", "freshness") == (0, 1)
        await shop.publish("buy", "u1", {"amount": 1})
        await shop.drain()
        await shop.assemble("note", {"user_id": "u1"})
        assert counted("context", "note", "freshness") == (1, 1)


async def test_errors_of_a_server_miss_both_objectives_and_errors_of_callers_none(
    shop: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop:
        engine = await runtime_of(shop).open()
        await shop.publish("buy", "u1", {"amount": 1})
        await shop.drain()

        async def is_down(*_: object, **__: object) -> None:
            raise BackendUnavailableError("Redis is down")

        with pytest.raises(InvalidInputError):
            await shop.assemble("prompt", {"user": "u1"})
        assert counted("context", "prompt", "latency") == (0, 0)
        monkeypatch.setattr(engine.assembler.recorder, "store", is_down)
        with pytest.raises(BackendUnavailableError):
            await shop.assemble("prompt", {"user_id": "u1"})
        assert counted("context", "prompt", "latency") == (0, 1)
        assert counted("context", "prompt", "freshness") == (0, 1)


async def test_events_and_schedules_that_no_worker_handles_miss_their_freshness(
    shop: FeatureStore, clock: ManualClock
) -> None:
    async with shop:
        hour = LastHour(shop)
        await shop.publish("buy", "u1", {"amount": 1})
        await shop.drain()  # with a tick of the schedule
        before = counted("feature", "rank", "freshness")
        await shop.publish("buy", "u1", {"amount": 1})
        await hour.update()
        assert counted("feature", "spent", "freshness") == (1, 0)
        assert counted("feature", "rank", "freshness") == before
        clock.advance("40s")
        await hour.update()
        await hour.update()  # the sample is there already
        assert counted("feature", "spent", "freshness") == (1, 1)
        assert counted("feature", "rank", "freshness") == (before[0], before[1] + 1)


async def test_the_overview_has_the_burn_rates_and_a_finding(
    shop: FeatureStore, clock: ManualClock
) -> None:
    async with shop:
        for seconds in range(10):
            late = clock.now() - timedelta(seconds=seconds)
            await shop.publish("buy", f"u{seconds}", {"amount": 1}, timestamp=late)
        for number in range(10):
            await shop.publish("buy", f"v{number}", {"amount": "none"})
        await shop.drain()
        transport = httpx.ASGITransport(create_app(shop))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            overview = (await client.get("/v1/overview")).json()
            metrics = (await client.get("/metrics")).text
    state = overview["objectives"][0]
    assert (state["kind"], state["name"], state["objective"]) == ("feature", "spent", "freshness")
    # Four events were older than five seconds, and ten failed: 14 of 20 where 10 % may.
    assert (state["total"], state["bad"], state["burn_rate"]) == (20, 14, 7.0)
    [finding] = [each for each in overview["findings"] if each["check"] == "objectives"]
    assert finding["subject"] == "The freshness of feature spent"
    assert finding["summary"] == "burns its error budget 7 times too fast"
    assert finding["severity"] == "warning"
    assert 'headwater_objective_target{kind="feature",name="spent",objective="freshness"} 0.9' in (
        metrics
    )


async def test_the_doctor_warns_of_objectives_that_nothing_can_count_for(
    settings: Settings,
) -> None:
    limits = {"freshness": "5s", "latency": "1s"}
    names = ["seen", "seen_count_1h", "noted", "given", "hint", "asked", "ranked", "sent"]
    wanted = {"features": dict.fromkeys(names, limits), "contexts": {"promt": limits}}
    store = FeatureStore(settings=settings.replace(objectives=wanted))

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="view", window="1h", aggregate="count")
    def seen(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User, trigger="view")
    async def noted(user_id: str, event: ServiceEvent) -> None:
        await store.set_feature("given", user_id, 1)

    @feature(entity=User)
    def asked(user_id: str) -> int:
        return 1

    sql = "SELECT 'ada' AS user_id, 1 AS ranked"
    store.sql_feature("ranked", int, entity=User, sql=sql, refresh="1h")
    store.stored_feature("given", int, entity=User)
    store.template_feature("hint", entity=User, template="{given}")

    @context(store)
    async def prompt(user_id: str) -> str:
        return "Hello"

    async with store:
        from headwater.doctor.examination import examine  # noqa: PLC0415 - loads all checks

        findings = (await examine(store, open_breakers=[])).findings
    warnings = {
        each.found.split(" ")[0].removeprefix("objectives."): each.remedy
        for each in findings
        if (each.check, each.severity) == ("objectives", "warning")
    }
    of_context = "set that of a context that reads it"
    assert warnings == {
        "features.seen_count_1h.freshness": "set objectives.features.seen",
        "features.seen_count_1h.latency": "set objectives.features.seen",
        "features.noted.freshness": of_context,
        "features.given.freshness": of_context,
        "features.given.latency": "leave it out",
        "features.hint.freshness": of_context,
        "features.hint.latency": "leave it out",
        "features.asked.freshness": of_context,
        "features.ranked.latency": "leave it out",
        "features.sent.freshness": "did you mean 'seen'?",
        "features.sent.latency": "did you mean 'seen'?",
        "contexts.promt.freshness": "did you mean 'prompt'?",
        "contexts.promt.latency": "did you mean 'prompt'?",
    }


async def test_both_results_are_listed_at_zero_and_what_is_declared_later_is_counted(
    shop: FeatureStore,
) -> None:
    def listed() -> dict[tuple[str, str], float]:
        [family] = objectives.RESULTS.collect()
        return {
            (sample.labels["name"], sample.labels["result"]): sample.value
            for sample in family.samples
            if sample.labels["objective"] == "latency"
        }

    async with shop:
        results = listed()
        assert {("prompt", "good"), ("prompt", "bad")} <= results.keys()
        assert ("gone", "good") not in results

        @entity(shop)
        class Visitor:
            visitor_id: str

        @feature(entity=Visitor, trigger="leave")
        async def gone(visitor_id: str, event: ServiceEvent) -> int:
            return 1

        await shop.publish("leave", "u1")
        await shop.drain()
        assert counted("feature", "gone", "latency") == (1, 0)
        assert ("gone", "bad") in listed()


def test_burn_rates_add_up_processes_and_windows() -> None:
    key = ObjectiveKey("context", "prompt", "latency")
    counts = {(key, "1h", "good"): 980, (key, "1h", "bad"): 20, (key, "5m", "good"): 5}
    [state] = ObjectiveCounts({key: 0.99}, counts).states()
    assert (state.total, state.bad) == (1_000, 20)
    assert (state.burn_rate, state.burn_rate_5m) == (2.0, 0.0)
    [unused] = ObjectiveCounts({key: 0.99}, {}).states()
    assert (unused.total, unused.burn_rate) == (0, None)


@pytest.mark.parametrize(
    ("objective", "problem"),
    [
        ({}, "has no limit"),
        ({"latency": "soon"}, "'soon'.* durations such as '300ms'"),
        ({"latency": "1s", "target": 1.0}, "a target above 0 and below 1"),
        ({"latencies": "1s"}, "each with a freshness, a latency or both"),
    ],
)
def test_a_wrong_objective_is_refused(objective: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Settings().replace(objectives={"features": {"spent": objective}})
