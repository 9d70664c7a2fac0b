"""The next pages of partitions: asked for ahead, and kept until they are taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from headwater.backends.redis.background_tasks import Errands
from headwater.backends.redis.client import Call, Redis, script_call
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.notifications import Heard, Wakes
from headwater.backends.redis.stream_codec import StreamPage, lease_text
from headwater.errors import BackendUnavailableError, LeaseLostError
from headwater.ports import Lease

# What a connection carries well within its timeout, should every partition be full.
_MOST_BYTES = 32 << 20
_MOST_PAGE_BYTES = 4 << 20
_encode = msgspec.json.Encoder().encode


class Ahead:
    """Knows of each partition the page that follows its cursor, that it has none, or nothing."""

    def __init__(self, redis: Redis, keys: Keys, wakes: Wakes) -> None:
        self._redis = redis
        self._keys = keys
        self._wakes = wakes
        self._limit = 0
        self._touches = b"{}"
        self._page_bytes = min(_MOST_PAGE_BYTES, _MOST_BYTES // len(keys.parts))
        self._pages: dict[int, StreamPage] = {}
        self._void: dict[int, Lease] = {}
        self._asking = Errands("reading ahead", "events cannot be read for now", wakes.wake_all)

    def want(self, limit: int, touches: Mapping[str, Collection[str]]) -> None:
        """Says how much of a partition is wanted, and which entities' states with it."""
        self._limit = limit
        self._touches = _encode(touches)

    async def fetch(self, leases: Sequence[Lease]) -> None:
        """Asks for the pages of those partitions of which nothing is known."""
        unknown = [lease for lease in leases if self._is_unknown(lease)]
        if self._redis.clustered:
            await self._ask_apart(unknown, insist=len(unknown) == len(leases))
        else:
            await self._ask(unknown)
        for lease in leases:
            if self._void.get(lease.partition) == lease:
                del self._void[lease.partition]
                raise LeaseLostError(lease.partition, lease.owner)

    def _is_unknown(self, lease: Lease) -> bool:
        page = self._pages.get(lease.partition)
        if page is not None and page.lease == lease:
            return False
        return not self._wakes.is_empty(lease.partition)

    async def _ask_apart(self, leases: Sequence[Lease], *, insist: bool) -> None:
        asking = {lease.partition: partial(self._ask, [lease]) for lease in leases}
        answered = await self._asking.run(asking, insist=insist)
        # To give nothing would say that there is nothing.
        if asking and insist and not answered:
            raise BackendUnavailableError(
                f"no server of the cluster says what is in {sorted(asking)} yet"
            )

    async def _ask(self, leases: Sequence[Lease]) -> None:
        heard = [self._wakes.heard(lease.partition) for lease in leases]
        answers = await self._redis.calls([self.call(lease) for lease in leases])
        for lease, before, answer in zip(leases, heard, answers, strict=True):
            self.keep(lease, before, answer)

    def call(self, lease: Lease) -> Call:
        """The call whose answer is a partition's next page."""
        keys = self._keys.parts[lease.partition]
        return script_call(
            "read",
            [keys.group, keys.events, keys.idle],
            *(lease_text(lease), self._limit, keys.entity, self._touches, self._page_bytes),
        )

    def keep(self, lease: Lease, heard: Heard, answer: list[Any] | None) -> None:
        """Keeps an answer for the next read."""
        self._pages.pop(lease.partition, None)
        if answer is None:
            self._void[lease.partition] = lease
        elif answer[1]:
            self._pages[lease.partition] = StreamPage(lease, *answer)
        else:
            self._wakes.found_empty(lease.partition, heard)

    def take(self, lease: Lease) -> StreamPage | None:
        """A partition's page, if there is one; what follows it is unknown from now on."""
        page = self._pages.get(lease.partition)
        if page is None or page.lease != lease:
            return None
        del self._pages[lease.partition]
        return page

    async def close(self) -> None:
        await self._asking.close()
