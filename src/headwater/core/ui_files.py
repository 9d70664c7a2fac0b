"""The files of the web UI, which are not part of every installation."""

from __future__ import annotations

from importlib.resources import files


def is_ui_installed() -> bool:
    """Return whether this installation has the web UI."""
    return files("headwater").joinpath("ui", "index.html").is_file()
