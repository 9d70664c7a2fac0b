"""Serving in a child process that is started anew when a Python file changes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headwater.cli.output import note
from headwater.cli.runner import SIGNALS

_POLL_SECONDS = 0.25


def keep_serving(file: Path, options: Sequence[str]) -> int:
    """Serves a features file until a signal comes; gives the exit code."""
    # A session of its own, so that Ctrl-C reaches the child once: through us.
    command = [sys.executable, "-m", "headwater", "serve", str(file), *options]
    received: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: received.append(number))
    folder = file.absolute().parent
    while True:
        seen = _stamps(folder)
        child = subprocess.Popen(command, start_new_session=True)
        ended = False
        while not received and _stamps(folder) == seen:
            time.sleep(_POLL_SECONDS)
            if not ended and child.poll() is not None:
                ended = True
                note(f"The server ended with {child.returncode}; waiting for a change.")
        code = _stop(child, received)
        if received:
            return code
        note("A file changed; starting anew.")


def _stop(child: subprocess.Popen[bytes], received: Sequence[int]) -> int:
    """Lets the child finish what it has begun, unless a second signal comes."""
    child.terminate()
    while True:
        if len(received) > 1:
            child.kill()
        try:
            return child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _stamps(folder: Path) -> dict[str, int]:
    """When each Python file of the folder was last written; environments are left out."""
    stamps: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__")) and not Path(root, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            path = Path(root, name)
            if path.suffix == ".py" and path.exists():
                stamps[str(path)] = path.stat().st_mtime_ns
    return stamps
