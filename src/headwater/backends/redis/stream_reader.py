"""Read streams in pages of limited size."""

from __future__ import annotations

from headwater.backends.redis.client import Redis, script_call
from headwater.backends.redis.stream_codec import Entry

# The outbox consumer holds the pages of several partitions in memory at once, as does Postgres.
_MAX_BYTES = 1 << 20


async def next_entries(
    redis: Redis,
    key: str,
    after: str,
    limit: int,
    *,
    newest_first: bool = False,
    upto: int | str = "",
) -> tuple[list[Entry], bool]:
    """Return the entries after a position ("" for the start), and whether more follow.

    With ``upto``, only those up to a millisecond.
    """
    arguments = (after, limit, _MAX_BYTES, int(newest_first), upto)
    entries, more = await redis.call(script_call("page", [key], *arguments))
    return entries, bool(more)
