"""A machine that is sound, however busy and full the real one is."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from headwater.doctor import overview

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.fixture(autouse=True)
def sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have free space on the disk, and wait for all answers."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(100 << 30, 0, 100 << 30))
    monkeypatch.setattr(overview, "_ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(overview, "_FIRST_INSPECTION_SECONDS", 60.0)
