"""The virtual environments of the peers, separate from the project's."""

import fcntl
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.case import NotInstalledError, last_line
from bench.process import ROOT, WORK

UV = ROOT / ".tools" / "bin" / "uv"


@dataclass(frozen=True)
class Environment:
    """A peer of one version, with everything it needs at exact versions."""

    peer: str
    pins: Path

    @property
    def folder(self) -> Path:
        return WORK / f"{self.peer.split()[0].lower()}-venv"

    @property
    def commands(self) -> Path:
        return self.folder / "bin"

    def ready(self) -> Path:
        """Return the folder of its commands; install the peer first if needed."""
        mark, pins = self.folder / ".ready", self.pins.read_text()
        WORK.mkdir(exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
            if not (mark.exists() and mark.read_text() == pins):
                for command in self._with_uv() if UV.exists() else self._with_pip():
                    self._run(command)
                mark.write_text(pins)
        return self.commands

    def _with_uv(self) -> list[list[str]]:
        python = str(self.commands / "python")
        return [
            [str(UV), "venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder)],
            [str(UV), "pip", "install", "--quiet", "-p", python, "-r", str(self.pins)],
        ]

    def _with_pip(self) -> list[list[str]]:
        return [
            [sys.executable, "-m", "venv", "--clear", str(self.folder)],
            [str(self.commands / "pip"), "install", "--quiet", "-r", str(self.pins)],
        ]

    def _run(self, command: list[str]) -> None:
        # Not in the project's folder, where uv would apply the project's own constraints.
        elsewhere = tempfile.gettempdir()
        done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = last_line(done.stderr)
            raise NotInstalledError(f"{self.peer} could not be installed: {reason}")
