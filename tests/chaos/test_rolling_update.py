"""The API is replaced, as the chart does it, while clients publish and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.rollout import roll_out
from headwater.settings.schema import Settings


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_no_request_fails_and_no_event_is_lost_while_the_api_is_updated(
    production: Settings, tmp_path: Path
) -> None:
    found = await roll_out(production, tmp_path, updates=1, pause=1.0)
    assert found.failed == []
    assert found.lost == []
    assert found.exits == [0, 0]
    assert found.requests > found.events > 0
