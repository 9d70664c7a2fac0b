"""Whether files of tests can be kept in memory."""

import os
from pathlib import Path

NEEDED_BYTES = 8 << 30
"""Several times the files that all tests have at the same time."""


def holds_test_files(folder: Path) -> bool:
    """Return whether there is room for the files, and programs among them can be run."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    can_run_programs = not found.f_flag & os.ST_NOEXEC
    is_writable = os.access(folder, os.W_OK | os.X_OK)
    return can_run_programs and is_writable and found.f_bavail * found.f_frsize >= NEEDED_BYTES
