"""Objectives: what counts as met and missed, burn rates, and what the overview says of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.engine import objectives
from headwater.engine.objectives import Key, ObjectiveCounts
from headwater.errors import ConfigError, FreshnessSLAError
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

OBJECTIVES = {
    "features": {
        "spent": {"freshness": "5s", "latency": "1h", "target": 0.9},
        "gone": {"latency": "1s"},
    },
    "contexts": {"prompt": {"freshness": "10m", "latency": "1h"}},
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count from zero, and leave nothing: the counts are those of the process."""
    monkeypatch.setattr(objectives, "_recent", {})
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

    return store


def counted(kind: str, name: str, objective: str) -> tuple[int, int]:
    """Return how many were good and bad in the last hour."""
    recent = objectives._recent[Key(kind, name, objective)]  # type: ignore[arg-type]  # noqa: SLF001
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
        assert counted("feature", "spent", "latency") == (3, 0)  # failures take time, too


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


async def test_an_objective_of_an_undeclared_name_is_a_warning_of_the_doctor(
    shop: FeatureStore,
) -> None:
    async with shop:
        from headwater.doctor.examination import examine  # noqa: PLC0415 - loads all checks

        findings = (await examine(shop, open_breakers=[])).findings
    [finding] = [each for each in findings if each.check == "objectives"]
    assert finding.severity == "warning"
    assert "objectives.features.gone" in finding.found


def test_burn_rates_add_up_processes_and_windows() -> None:
    key = Key("context", "prompt", "latency")
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
