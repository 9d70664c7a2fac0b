"""Backfills under chaos: nothing is lost or counted twice, whatever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.backfill import BackfillChaos, BackfillOrder
from headwater.settings.schema import Settings

KILLS = 4


@pytest.mark.both_environments
@pytest.mark.timeout(300)
async def test_a_backfill_that_is_killed_while_events_flow_equals_a_feature_of_the_first_day(
    settings: Settings, tmp_path: Path
) -> None:
    short = settings.replace(worker={"lease_ttl": 2.0})
    found = await BackfillChaos(BackfillOrder(seed=7, kills=KILLS), short, tmp_path).run()
    assert found.differences == []
    assert found.kills["backfill"] >= 1
