"""The driver of a chaos run cleans up after itself, even when it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.fleet import Fleet
from headwater.settings.schema import Settings
from tests.engine.support import until

ROOT = Path(__file__).parents[2]

KILLED_INSIDE_THE_BLOCK = """
import asyncio, os, signal
from pathlib import Path
from chaos.fleet import Fleet
from headwater.settings.schema import Settings

async def main():
    nowhere = {"url": "redis://127.0.0.1:1"}, {"url": "postgresql://127.0.0.1:1/none"}
    settings = Settings().replace(redis=nowhere[0], postgres=nowhere[1])
    async with Fleet(settings, Path(os.environ["FOLDER"]), 2) as fleet:
        os.write(1, " ".join(map(str, fleet.pids)).encode())
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.chaos
async def test_a_killed_driver_leaves_no_worker(tmp_path: Path) -> None:
    driver = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED_INSIDE_THE_BLOCK),
        cwd=ROOT,
        env={**os.environ, "FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    said, _ = await driver.communicate()
    assert driver.returncode == -signal.SIGKILL
    pids = said.decode().split()
    assert len(pids) == 2

    async def all_gone() -> bool:
        return not any([await is_alive(pid) for pid in pids])

    await until(all_gone)


@pytest.mark.chaos
async def test_a_worker_that_is_just_being_started_can_be_frozen(tmp_path: Path) -> None:
    fleet = Fleet(Settings(), tmp_path, 1)
    await fleet.freeze(0, 0.0)
    assert fleet.pids == [0]


async def is_alive(pid: str) -> bool:
    """Return whether a process runs; a zombie does not."""
    asked = await asyncio.create_subprocess_exec(
        *("ps", "-o", "stat=", "-p", pid), stdout=subprocess.PIPE
    )
    state, _ = await asked.communicate()
    return bool(state.strip()) and not state.startswith(b"Z")
