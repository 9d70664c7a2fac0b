"""The threads of NumPy's matrix products, which cost more than they bring on a busy machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import NamedTuple


class _Library(NamedTuple):
    """How to read and to set the number of threads, for the process."""

    read: Callable[[], int]
    set: Callable[[int], object]


def _found() -> _Library | None:
    """Return the OpenBLAS that NumPy's wheels bring; None if NumPy uses another library."""
    library = ctypes.CDLL(import_module("numpy.linalg._umath_linalg").__file__)
    try:
        return _Library(
            library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
        )
    except AttributeError:
        return None


class _SingleThread:
    """The users of a single thread; the last one restores the earlier number of threads."""

    def __init__(self) -> None:
        self._library = _found()
        self._lock = Lock()
        self._users = 0
        self._before = 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        library = self._library
        if library is None:
            yield
            return
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = library.read()
                library.set(1)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    library.set(self._before)


single_blas_thread = _SingleThread()
"""Compute matrix products inside the block in the calling thread.

OpenBLAS divides each product among all cores, and its threads wait for each other actively: next to
other busy processes, a sequence of small products takes ten times the processor time.
"""
