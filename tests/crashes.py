"""Why a process of the tests died, for the summary of a run: pytest-xdist says only that it did."""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

SHOWN_LINES = 24

crashes = pytest.StashKey[list[str]]()


def _stacks(pid: int) -> Path:
    """Return the file to which a process writes its stacks when a fault ends it."""
    return Path(gettempdir()) / f"crash-of-{pid}.txt"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        faulthandler.enable(_stacks(os.getpid()).open("w"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        faulthandler.disable()
        _stacks(os.getpid()).unlink(missing_ok=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    if error is None:
        return
    process = node.gateway._io.popen  # noqa: SLF001 - xdist has no other way to its process
    status = process.wait(timeout=60)
    reason = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    file = _stacks(process.pid)
    stacks = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    fault = "\n".join(stacks[stacks.find("Current thread") :].splitlines()[:SHOWN_LINES])
    node.config.stash.setdefault(crashes, []).append(
        f"{node.gateway.id} ended with {reason}\n{fault}"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for text in terminalreporter.config.stash.get(crashes, []):
        terminalreporter.section("crashed process")
        terminalreporter.write_line(text)
