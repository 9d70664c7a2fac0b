"""A process that copies a topic into the log of a store, until its end or until it is killed."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from headwater import FeatureStore
from headwater.core.clock import SystemClock
from headwater.model.events import MirrorOptions, MirrorReport
from headwater.settings.schema import Settings
from headwater.store import event_mirror


def show(_: MirrorReport) -> None:
    sys.stdout.write("copied\n")
    sys.stdout.flush()


async def mirror(settings: Settings, url: str) -> None:
    async with FeatureStore(settings=settings) as store:
        options = MirrorOptions(once=True, progress=show)
        await event_mirror.EventMirror(store.bus, SystemClock(), settings, url, options).run()


if __name__ == "__main__":
    event_mirror._MOST = int(sys.argv[3])  # noqa: SLF001 - portions of this size
    given = Settings().replace(**msgspec.json.decode(sys.argv[1]))
    # The ids of events recognize no repetition, so all depends on the marks.
    asyncio.run(mirror(given.replace(ingest={"dedup_window": "1ms"}), sys.argv[2]))
