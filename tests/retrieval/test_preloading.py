"""Modules that take long to load are loaded before they would block the event loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORKER = """
import asyncio, sys
from headwater import FeatureStore, Index, Worker

store = FeatureStore()
Index(store, "docs")

async def main():
    async with store:
        before = "numpy" in sys.modules
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        while not worker.health().ok:
            await asyncio.sleep(0.01)
        print(before, "numpy" in sys.modules)
        worker.stop()
        await running

asyncio.run(main())
"""


def test_a_worker_loads_the_modules_of_indexes_before_it_takes_events(tmp_path: Path) -> None:
    environment = {**os.environ, "HEADWATER_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", WORKER], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "False True"
