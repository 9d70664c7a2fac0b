"""The end of a server or a worker: orderly, unless a function blocks a thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENDING = """
import asyncio, threading
from headwater import FeatureStore, entity, feature
from headwater.cli.processes import run_long
from headwater.settings.schema import Settings

store = FeatureStore(settings=Settings().replace(home={home!r}))
hung = threading.Event()

@entity(store)
class User:
    user_id: str

@feature(entity=User)
def slow(user_id: str) -> int:
    hung.wait()
    return 1

async def main() -> None:
    {main}

print(store.sync.list_contexts().contexts)
run_long(main())
print("in order")
"""

QUIETLY = "await store.open()"
HANGING = """
    reading = asyncio.create_task(store.get_feature("slow", "u1"))
    await asyncio.wait([reading], timeout=0.2)
    reading.cancel()
"""


def end(home: Path, main: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENDING.format(home=str(home), main=main.strip())],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_blocking_calls_do_not_keep_the_process_alive(tmp_path: Path) -> None:
    ended = end(tmp_path, QUIETLY)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\nin order\n", "")


def test_a_blocked_function_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    ended = end(tmp_path, HANGING)
    assert (ended.returncode, ended.stdout) == (0, "[]\nin order\n")
