"""The threads of NumPy's matrix products, which cost more than they bring on a busy machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Lock


class _SingleThread:
    """The users of a single thread; the last one restores the earlier number of threads."""

    def __init__(self) -> None:
        library = ctypes.CDLL(import_module("numpy.linalg._umath_linalg").__file__)
        self._read: Callable[[], int] = lambda: 1
        self._set: Callable[[int], object] = lambda _: None
        with suppress(AttributeError):  # NumPy may use another library than that of its wheels
            self._read = library.scipy_openblas_get_num_threads64_
            self._set = library.scipy_openblas_set_num_threads64_
        self._lock = Lock()
        self._users = 0
        self._before = 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = self._read()
                self._set(1)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._set(self._before)


single_blas_thread = _SingleThread()
"""Compute matrix products inside the block in the calling thread.

OpenBLAS divides each product among all cores, and its threads wait for each other actively: next to
other busy processes, a sequence of small products takes ten times the processor time.
"""
