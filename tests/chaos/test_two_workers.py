"""Two workers on hot entities, without crashes: a plain consumer group would lose updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.fleet import Fleet
from chaos.oracle import expect
from chaos.plan import Step
from chaos.run import opened
from chaos.waiting import until
from headwater import FeatureStore, ServiceEvent
from headwater.settings.schema import Settings

ACCOUNTS = [f"account-{number}" for number in range(6)]
EVENTS_EACH = 500
AT_ONCE = 50
PATIENCE_SECONDS = 60.0


def steps(first: int) -> list[Step]:
    """The next events of every account, mixed."""
    return [
        Step(f"{account}/{number}", "step", account, {"number": number})
        for number in range(first, first + AT_ONCE)
        for account in ACCOUNTS
    ]


async def publish(store: FeatureStore, batch: list[Step]) -> None:
    await store.bus.publish_many(
        [ServiceEvent(s.event_type, s.entity_id, s.payload, event_id=s.event_id) for s in batch]
    )


async def owners(store: FeatureStore) -> set[str | None]:
    return {lag.owner for lag in await store.admin.lag()}


@pytest.mark.chaos
@pytest.mark.timeout(180)
async def test_two_workers_lose_no_update_of_hot_entities(
    production: Settings, tmp_path: Path
) -> None:
    async with opened(production) as store, Fleet(production, tmp_path, 2) as fleet:

        async def both_work() -> bool:
            found = await owners(store)
            return len(found) == 2 and None not in found

        async def done() -> bool:
            return sum(lag.waiting for lag in await store.admin.lag()) == 0

        assert await until(both_work, PATIENCE_SECONDS)
        published: list[Step] = []
        for first in range(1, EVENTS_EACH + 1, AT_ONCE):
            published += steps(first)
            await publish(store, published[-AT_ONCE * len(ACCOUNTS) :])
        assert await until(done, PATIENCE_SECONDS)
        assert await until(both_work, PATIENCE_SECONDS)
        assert await fleet.stop() == [0, 0]
        found = await store.get_features(["chain"], ACCOUNTS)
        audit = await store.admin.audit()
    assert {account: row["chain"] for account, row in found.items()} == expect(published).chains
    assert (audit.differences, audit.entity_ids) == ([], len(ACCOUNTS))
