"""How much memory of Redis the keys of a store take, and those of its neighbours."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError

_SAMPLED = 500
"""Keys of each server that an estimate looks at."""
_EXAMINED = 5_000
OWN = "this store"
_STATE = re.compile(rb".+?:\{p\d+\}:entity:([^:]+):", re.DOTALL)
# A key of a partition shows that its prefix is that of a store.
_OF_STORE = re.compile(r"\{?(.+?):\{p\d+\}:")


class Share(NamedTuple):
    """What keys with one owner take of all that were looked at, from 0 to 1."""

    owner: str
    of_keys: float
    of_memory: float | None
    """None if the server does not tell the size of all keys."""


async def store_bytes(redis: Redis, keys: Keys) -> int | None:
    """Return about how many bytes the keys of a store take; None if the server does not tell.

    The keys that may be large are measured, and a sample of the many keys: the states of
    entities, whose names it tells, and cached results.
    """
    sampled = await redis.sample(_SAMPLED)
    if sampled is None:
        return None
    many: list[list[bytes]] = []
    entities: set[str] = set()
    for _, names in sampled:
        own = [name for name in names if keys.owns(name)]
        states = {name: match[1].decode() for name in own if (match := _STATE.match(name))}
        entities.update(states.values())
        many.append([*states, *(name for name in own if name.startswith(keys.cache.encode()))])
    large = [keys.dead, *(name for part in keys.parts for name in part.large(entities))]
    sizes = await _sizes(redis, [name.encode() for name in large])
    if not any(size is not None for size in sizes):
        return None
    total = float(sum(size or 0 for size in sizes))
    for (count, names), own in zip(sampled, many, strict=True):
        known = [size for size in await _sizes(redis, own) if size is not None]
        if known:
            total += count * len(own) / len(names) * sum(known) / len(known)
    return round(total)


async def shares(redis: Redis, keys: Keys) -> list[Share]:
    """Return the owners of a sample of all keys, the largest first; none without one."""
    counts: defaultdict[str, float] = defaultdict(float)
    sizes: defaultdict[str, float] = defaultdict(float)
    is_measured = True
    for count, names in await redis.sample(_EXAMINED) or ():
        texts = [name.decode(errors="replace") for name in names]
        stores = {match[1] for text in texts if (match := _OF_STORE.match(text))}
        for name, text, size in zip(names, texts, await _sizes(redis, names), strict=True):
            owner = OWN if keys.owns(name) else _owner(text, stores)
            counts[owner] += count / len(names)
            sizes[owner] += count / len(names) * (size or 0)
            is_measured = is_measured and size is not None
    all_keys, all_bytes = sum(counts.values()) or 1, sum(sizes.values()) or 1
    owners = [
        Share(owner, counts[owner] / all_keys, sizes[owner] / all_bytes if is_measured else None)
        for owner in counts
    ]
    return sorted(owners, key=lambda share: share.of_memory or share.of_keys, reverse=True)


def _owner(name: str, stores: set[str]) -> str:
    for store in stores:
        if name.removeprefix("{").startswith(f"{store}:"):
            return f"the store with the prefix {store!r}"
    head, colon, _ = name.partition(":")
    return f"keys that begin with {head + colon!r}" if colon else "keys without a prefix"


async def _sizes(redis: Redis, names: Sequence[bytes]) -> list[int | None]:
    """Return the size of each key; None for one that the user may not see."""
    calls = [command(name.decode(errors="replace"), "MEMORY", "USAGE", name) for name in names]
    answers = await redis.calls_apart(calls, redis.timeout)
    return [None if isinstance(answer, BackendError) else answer or 0 for answer in answers]
