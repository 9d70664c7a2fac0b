"""Reading streams in portions of which any server and connection makes light work."""

from __future__ import annotations

from headwater.backends.redis.client import Redis, script_call
from headwater.backends.redis.stream_codec import Entry

# Those of several partitions are held at once by whoever takes them to Postgres, and by Postgres.
_MOST_BYTES = 1 << 20


async def next_entries(redis: Redis, key: str, after: str, limit: int) -> tuple[list[Entry], bool]:
    """The entries after a position ("" for the start), at least one; says if more follow."""
    entries, more = await redis.call(script_call("page", [key], after, limit, _MOST_BYTES))
    return entries, bool(more)
