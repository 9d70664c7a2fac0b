"""A server that dies during a long command is named, with the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from tests.cli.conftest import FEATURES, Run, wait_until

SLOW = """
import time
from pathlib import Path

@feature(entity=User, trigger="purchase")
def slow(user_id: str, event: ServiceEvent) -> float:
    while Path("wait").exists():
        Path("seen").touch()
        time.sleep(0.01)
    return 1.0
"""


def test_a_server_that_is_killed_during_a_backfill_is_named(run: Run, folder: Path) -> None:
    (folder / "features.py").write_text(FEATURES + SLOW)
    headwater = [sys.executable, "-m", "headwater"]
    command = [*headwater, "serve", "features.py", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        url = msgspec.json.decode(server.stdout.readline())["url"]
        run("events", "publish", "purchase", "u1", "amount=5", "--url", url)
        history = ("features", "history", "slow", "u1", "--url", url, "--json")
        wait_until(lambda: run(*history).json)
        (folder / "wait").touch()
        replay = [*headwater, "backfill", "slow", "--url", url]
        with subprocess.Popen(replay, stderr=subprocess.PIPE, text=True) as backfill:
            seen = folder / "seen"
            wait_until(lambda: seen.exists() or backfill.poll() is not None)
            server.kill()
            _, errors = backfill.communicate()
    assert backfill.returncode == 1
    assert f"the connection to {url} ended before the result arrived" in errors
    assert "run this again" in errors
