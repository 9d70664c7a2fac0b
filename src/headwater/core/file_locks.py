"""Locks of files, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a file, which is created if needed; yield whether it was acquired."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        held = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            held = False
        yield held
    finally:
        os.close(handle)
