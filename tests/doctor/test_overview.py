"""The overview: a sentence about the worst thing, and everything that needs attention."""

from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, context, feature
from headwater.doctor.overview import StoreOverview
from headwater.engine.last_hour import STEP, LastHour
from headwater.model.health import Overview
from headwater.testing import ManualClock
from tests.engine.test_last_hour import clock as clock  # aligned with the samples


async def overview_of(store: FeatureStore, hour: LastHour | None = None) -> Overview:
    reader = StoreOverview(store, hour or LastHour(store))
    return await reader.read(await store.admin.health(), [])


def found(overview: Overview) -> dict[str, str]:
    return {each.check: f"{each.subject} {each.summary}" for each in overview.findings}


@pytest.mark.both_environments
async def test_a_schedule_that_fails_is_late_until_it_succeeds(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    problem = ["no rates"]

    @feature(entity=user, trigger="signup")
    def known(user_id: str, event: ServiceEvent) -> bool:
        return True

    @feature(entity=user, refresh="1h", materialize=True)
    def rank(user_id: str) -> int:
        if problem:
            raise ValueError(problem[0])
        return 1

    for number in range(20):
        await store.publish("signup", f"u{number}")
    await store.drain()
    clock.advance("2h")
    began = clock.now()
    await store.drain()
    clock.advance("5m")
    overview = await overview_of(store)
    (late,) = [each for each in overview.findings if each.check == "schedules"]
    assert f"{late.subject} {late.summary}" == f"rank refresh fails since {began:%d %b %H:%M} UTC"
    assert late.detail.startswith("failed for ")
    assert (late.page, late.params) == ("store", {"card": "feature:rank"})
    problem.clear()
    clock.advance("1h")
    await store.drain()
    assert "schedules" not in found(await overview_of(store))
    clock.advance("4h")
    assert found(await overview_of(store))["schedules"] == "rank has not been refreshed for 4h"


@pytest.mark.both_environments
async def test_the_title_says_how_things_are_and_the_subtitle_why(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="purchase", max_retries=0)
    def total_spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @context(store, freshness_sla="1m")
    async def support(user_id: str) -> list[str]:
        return [f"spent {await store.get_feature('total_spend', user_id)}"]

    hour = LastHour(store)
    await hour.update()
    await store.publish("purchase", "ada", {"amount": "none"})
    await store.publish("purchase", "bob", {"amount": 5})
    await store.drain()
    await support("ada")
    await support("bob")
    clock.advance(timedelta(seconds=STEP))
    await hour.update()
    overview = await overview_of(store, hour)
    assert (
        found(overview).items()
        >= {
            "partitions": "5 of 5 partitions have no worker",
            "dead letters": "1 dead letter of `total_spend`",
            "contexts": "support was not fresh in 1 of 2 contexts",
        }.items()
    )
    assert overview.status == "attention"
    assert (overview.waiting, overview.dead_letters) == (0, 1)
    # Both numbers are of now, as the sentences are, and not of the last sample.
    await store.publish("purchase", "eve", {"amount": "none"})
    await store.drain()
    await store.publish("purchase", "eve", {"amount": 1})
    later = await overview_of(store, hour)
    assert (later.waiting, later.dead_letters) == (1, 2)
    assert found(later)["dead letters"] == "2 dead letters of `total_spend`"
    (contexts,) = overview.contexts
    assert (contexts.name, contexts.total, contexts.fresh_percent) == ("support", 2, 50)
    assert contexts.per_minute == 0.03  # two in an hour, of which few samples are known
