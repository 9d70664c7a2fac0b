"""A process that rewrites one document without end, for tests that kill it.

Run as ``python -m tests.backends.postgres.rewriting URL SCHEMA``.
"""

from __future__ import annotations

import asyncio
import os
import sys

from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.core.clock import SystemClock
from headwater.settings.schema import Settings
from tests.backends.postgres.documents import spec, write
from tests.backends.postgres.outbox import MemoryOutbox

CHUNKS = 40


async def rewrite(past: PostgresEnvironment) -> None:
    """Write version after version; half of the chunks stay the same."""
    number = 0
    while True:
        number += 1
        kept = [f"kept {part}" for part in range(CHUNKS // 2)]
        changed = [f"version {number} {os.getpid()} {part}" for part in range(CHUNKS // 2)]
        await past.vectors.write([write("a", *kept, *changed, metadata={"kind": "long"})])


async def main(url: str, schema: str) -> None:
    settings = Settings().replace(postgres={"url": url, "schema": schema})
    past = await open_postgres(settings, SystemClock(), MemoryOutbox())
    await past.vectors.create("docs", spec())
    await rewrite(past)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
