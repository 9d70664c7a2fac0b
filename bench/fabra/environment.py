"""The environment Fabra is installed into; nothing of it reaches the project's own."""

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.case import ContestantFailedError, last_line
from bench.process import ROOT, WORK

VERSION = "2.3.3"
FOLDER = WORK / "fabra-venv"
PINS = Path(__file__).with_name("requirements.txt")
UV = ROOT / ".tools" / "bin" / "uv"
READY = FOLDER / ".ready"


def ready() -> Path:
    """The folder of its commands, installed first where that has not been done."""
    commands = FOLDER / "bin"
    if not (READY.exists() and READY.read_text() == PINS.read_text()):
        for command in _with_uv(commands) if UV.exists() else _with_pip(commands):
            _run(command)
        READY.write_text(PINS.read_text())
    return commands


def _with_uv(commands: Path) -> list[list[str]]:
    return [
        [str(UV), "venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER)],
        [str(UV), "pip", "install", "--quiet", "-p", str(commands / "python"), "-r", str(PINS)],
    ]


def _with_pip(commands: Path) -> list[list[str]]:
    return [
        [sys.executable, "-m", "venv", "--clear", str(FOLDER)],
        [str(commands / "pip"), "install", "--quiet", "-r", str(PINS)],
    ]


def _run(command: list[str]) -> None:
    # Not in the project's folder, where uv would apply the project's own constraints.
    elsewhere = tempfile.gettempdir()
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = last_line(done.stderr)
        raise ContestantFailedError(f"Fabra {VERSION} could not be installed: {reason}")
