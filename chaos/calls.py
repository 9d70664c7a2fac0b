"""The durations of calls: none may outlive twice its timeout, whatever has failed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import HeadwaterError

MOST_TIMEOUTS = 2.0
"""What a call may take, as a multiple of its timeout, on a machine that does nothing else."""


class Calls:
    """Times calls by their kind, and counts those that were refused with an error."""

    def __init__(self, most: float = MOST_TIMEOUTS) -> None:
        self._most = most
        self.longest: dict[str, float] = {}
        """The longest call of each kind, as a multiple of its timeout."""
        self.refused: Counter[str] = Counter()

    @contextmanager
    def timed(self, kind: str, timeout: float) -> Iterator[None]:
        """Time the block, which is one call."""
        began = time.monotonic()
        try:
            yield
        except HeadwaterError:
            self.refused[kind] += 1
            raise
        finally:
            share = (time.monotonic() - began) / timeout
            self.longest[kind] = max(share, self.longest.get(kind, 0.0))

    @property
    def violations(self) -> list[str]:
        """The kinds of calls that took too long."""
        return [
            f"a call to {kind} took {share:.1f} times its timeout"
            for kind, share in self.longest.items()
            if share > self._most
        ]
