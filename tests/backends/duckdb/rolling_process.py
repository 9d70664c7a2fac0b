"""A process that writes history and rolls it into segments until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.backends.duckdb.embedded import after, change, embedded

SEGMENT_ROWS = 10


async def write_and_roll(path: Path, first: int) -> None:
    with embedded(path, SEGMENT_ROWS) as parts:
        number = first
        while True:
            batch = [change(n, as_of=after(n)) for n in range(number, number + SEGMENT_ROWS)]
            await parts.online.put(batch)
            number += SEGMENT_ROWS
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            await parts.history.maintain()


if __name__ == "__main__":
    asyncio.run(write_and_roll(Path(sys.argv[1]), int(sys.argv[2])))
