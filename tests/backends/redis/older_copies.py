"""Copies of what Redis holds, and their return: a restore from a backup."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys, PartitionKeys


async def copied(redis: Redis, keys: Keys) -> dict[str, bytes]:
    """Return a copy of everything that the store has in Redis."""
    names = await _names(redis, keys, keys.parts)
    dumps = await redis.calls([command(name, "DUMP", name) for name in names])
    return {name: dump for name, dump in zip(names, dumps, strict=True) if dump is not None}


async def restored(
    redis: Redis, keys: Keys, copy: Mapping[str, bytes], partition: int | None = None
) -> None:
    """Put a copy in the place of what the store has in Redis, or of one partition."""
    parts = keys.parts if partition is None else [keys.parts[partition]]
    present = await _names(redis, keys, parts)
    if partition is None:
        present += copy
    for name in dict.fromkeys(present):
        call = command(name, "DEL", name)
        if name in copy:
            call = command(name, "RESTORE", name, 0, copy[name], "REPLACE")
        await redis.call(call)


async def _names(redis: Redis, keys: Keys, parts: list[PartitionKeys]) -> list[str]:
    """Return the keys of some partitions; with all partitions, also those of the whole store."""
    names = [] if len(parts) == 1 else [keys.meta, keys.catalog, keys.erasures, keys.dead]
    for part in parts:
        prefixes = {part.entity, part.ids, part.groups, part.leases}
        names += [name for name in vars(part).values() if name not in prefixes]
        ids = f"{part.ids}User"
        users = await redis.call(command(ids, "ZRANGE", ids, 0, -1))
        names += [ids, *(part.state(("User", user.decode())) for user in users)]
    return names
