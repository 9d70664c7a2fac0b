"""The files of the web UI, which are not part of every installation."""

from __future__ import annotations

from pathlib import Path

UI_FOLDER = Path(__file__).parents[1] / "ui"
"""The folder of the built web UI; its sources are not part of the package."""

BUILD_UI = "run `make ui` in a checkout of the repository, or install Headwater from its wheel"
"""What to do in an installation without the web UI."""


def is_ui_installed(folder: Path = UI_FOLDER) -> bool:
    """Return whether this installation has the web UI."""
    return (folder / "index.html").is_file()
