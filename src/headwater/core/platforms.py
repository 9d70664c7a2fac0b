"""The systems that Headwater runs on."""

from __future__ import annotations

import os
import sys

_GLIBC = "CS_GNU_LIBC_VERSION"


def check_platform() -> None:
    """Raise ImportError on a system other than macOS, or Linux with glibc."""
    system = sys.platform
    if system == "linux":
        if _GLIBC in os.confstr_names:
            return
        system = "Linux without glibc, such as Alpine"
    if system != "darwin":
        raise ImportError(
            f"Headwater runs on Linux with glibc and on macOS, not on {system}; use a glibc-based "
            "image such as python:3.12-slim or, on Windows, WSL 2"
        )
