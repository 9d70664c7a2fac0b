"""Workers are replaced one by one while events come in."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.rolling import rolling_restart
from headwater.settings.schema import Settings

LEASE_TTL = 60.0


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_a_rolling_restart_keeps_no_partition_waiting_for_a_lease_to_end(
    production: Settings, tmp_path: Path
) -> None:
    settings = production.replace(worker={"lease_ttl": LEASE_TTL})
    gaps = await rolling_restart(settings, tmp_path, workers=2)
    assert len(gaps.restarting) == 2 * settings.partitions
    assert gaps.longest < LEASE_TTL
