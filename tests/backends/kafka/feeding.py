"""A process that appends the records of all partitions, as a worker would, until it is killed."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.ports import no_subjects
from headwater.settings.schema import Settings


async def feed(settings: Settings) -> None:
    backends = await connect(settings, SystemClock())
    assert backends.feeder is not None
    sys.stdout.write("feeding\n")
    sys.stdout.flush()
    await backends.feeder.run(range(settings.partitions), no_subjects)


if __name__ == "__main__":
    asyncio.run(feed(Settings().replace(**msgspec.json.decode(sys.argv[1]))))
