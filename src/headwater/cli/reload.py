"""`headwater serve --reload`: a child process that restarts when a Python file changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headwater.cli.output import note
from headwater.http.server.processes import stop_signals
from headwater.store.loader import locate

_POLL_SECONDS = 0.25


def serve_with_reload(file: Path, options: Sequence[str]) -> int:
    """Serve a features file until a signal arrives, and return the exit code."""
    # The child gets its own session, so that a signal reaches it only through this process.
    command = serve = [sys.executable, "-m", "headwater", "serve", str(file), *options]
    received: list[int] = []
    for number in stop_signals():
        signal.signal(number, lambda number, _: received.append(number))
    folder = locate(file).root
    while True:
        seen = _modified_times(folder)
        child = subprocess.Popen(command, start_new_session=True)
        has_ended = False
        while not received and _modified_times(folder) == seen:
            time.sleep(_POLL_SECONDS)
            if not has_ended and child.poll() is not None:
                has_ended = True
                note(f"The server exited with {child.returncode}; waiting for a file to change.")
        code = _stop(child, received)
        if received:
            return code
        note("A file changed; restarting.")
        if not has_ended:
            command = [*serve, "--restarted"]


def _stop(child: subprocess.Popen[bytes], received: Sequence[int]) -> int:
    """Let the child finish its work; kill it if a second signal arrives."""
    child.terminate()
    while True:
        if len(received) > 1:
            child.kill()
        try:
            return child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _modified_times(folder: Path) -> dict[str, int]:
    """Return when each Python file in a folder was written, without virtual environments."""
    times: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__")) and not Path(root, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            path = Path(root, name)
            if path.suffix == ".py" and path.exists():
                times[str(path)] = path.stat().st_mtime_ns
    return times
