"""Starting, watching and killing processes of a program such as program.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.engine.support import records, until

ROOT = Path(__file__).parents[2]


def environment(home: Path, **variables: object) -> dict[str, str]:
    """Return the environment of a process whose store is in this home."""
    given = {f"HEADWATER_{name.upper()}": str(value) for name, value in variables.items()}
    plain = {name: value for name, value in os.environ.items() if "HEADWATER" not in name}
    return {**plain, "HEADWATER_HOME": str(home), **given}


class Process:
    """One process of the program; it is killed at the end of the block."""

    def __init__(self, module: str, role: str, variables: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, role],
                cwd=ROOT,
                env=variables,
                stdout=stream,
                stderr=stream,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.exit_code is None:
            self.kill()

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stopped(self) -> None:
        """Wait until the process is stopped by SIGSTOP."""
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def kill(self) -> None:
        """Kill the process as the kernel does when memory runs out."""
        self._process.kill()
        self._process.wait()

    def records(self, event: str) -> list[dict[str, Any]]:
        """Return the log records of one event so far."""
        return records(self._log.read_text(), event)

    async def ended(self) -> int:
        """Wait until the process exits, and return its exit code."""
        await until(lambda: self.exit_code is not None)
        return self._process.returncode


class Fleet:
    """Processes over one home, each with a separate log."""

    def __init__(
        self, home: Path, *, module: str = "tests.processes.program", **variables: object
    ) -> None:
        self._home = home
        self._module = module
        self._variables = environment(home, **variables)
        self._started = 0

    def start(self, role: str = "work") -> Process:
        self._started += 1
        return Process(
            self._module, role, self._variables, self._home / f"process-{self._started}.log"
        )
