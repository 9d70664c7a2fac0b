"""The time of sync functions, for tests that do not depend on how fast they run."""

from __future__ import annotations

import time


class SyncTime:
    """The module ``time`` for calls of sync functions: their time passes only by ``advance``."""

    perf_counter = staticmethod(time.perf_counter)
    thread_time = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
