"""The driver of a chaos run cleans up after itself, even when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.engine.support import until

ROOT = Path(__file__).parents[2]

KILLED_INSIDE_THE_BLOCK = """
import asyncio, os, signal
from pathlib import Path
from chaos.fleet import Fleet
from headwater.settings import Settings

async def main():
    nowhere = {"url": "redis://127.0.0.1:1"}, {"url": "postgresql://127.0.0.1:1/none"}
    settings = Settings().with_(redis=nowhere[0], postgres=nowhere[1])
    async with Fleet(settings, Path(os.environ["FOLDER"]), 2) as fleet:
        os.write(1, " ".join(map(str, fleet.pids)).encode())
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_killed_driver_leaves_no_worker(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_INSIDE_THE_BLOCK],
        cwd=ROOT,
        env={**os.environ, "FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in killed.stdout.split()]
    assert len(pids) == 2
    await until(lambda: not any(map(is_alive, pids)))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
