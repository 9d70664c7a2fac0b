"""Backfills under chaos: nothing is lost or counted twice, whatever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.backfill import BackfillChaos, BackfillOrder
from headwater.settings.schema import Settings

KILLS = 4


@pytest.mark.chaos
@pytest.mark.both_environments
@pytest.mark.timeout(900)
async def test_a_backfill_that_is_killed_while_events_flow_equals_a_feature_of_the_first_day(
    settings: Settings, tmp_path: Path
) -> None:
    short = settings.replace(partitions=2, worker={"lease_ttl": 2.0})
    order = BackfillOrder(seed=7, kills=KILLS, processes=1, accounts=6)
    found = await BackfillChaos(order, short, tmp_path).run()
    assert found.differences == []
    assert found.kills["backfill"] >= 1
