"""A process that prunes history and kills itself at a change of the manifest."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from headwater.backends.sqlite.history_tail import SqliteRecentHistory
from headwater.ports import Segment
from tests.backends.duckdb.embedded import Embedded, after, embedded

SEGMENT_ROWS = 10


class DeadlyTail(SqliteRecentHistory):
    """A tail whose process dies before the n-th segment is replaced."""

    def __init__(self, parts: Embedded, replacements: int) -> None:
        super().__init__(parts.home, parts.erasures)
        self._replacements = replacements

    def replace(self, names: Sequence[str], merged: Sequence[Segment], now: datetime) -> None:
        if not self._replacements:
            os.kill(os.getpid(), signal.SIGKILL)
        self._replacements -= 1
        super().replace(names, merged, now)


async def prune(path: Path, moment: float, replacements: int) -> None:
    with embedded(path, SEGMENT_ROWS) as parts:
        history = parts.over(DeadlyTail(parts, replacements))
        await history.prune(history=after(moment), events=None)


if __name__ == "__main__":
    asyncio.run(prune(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
