"""The time of sync functions."""

from __future__ import annotations

import pytest

from headwater.core import thread_offload
from tests.features.sync_time import SyncTime


@pytest.fixture
def sync_time(monkeypatch: pytest.MonkeyPatch) -> SyncTime:
    """Return the time of sync functions, which only the test advances."""
    controlled = SyncTime()
    monkeypatch.setattr(thread_offload, "time", controlled)
    return controlled
