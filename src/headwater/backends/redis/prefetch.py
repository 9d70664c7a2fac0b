"""Prefetched pages of partitions, kept until a worker reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from headwater.backends.redis.background_tasks import PartitionTasks
from headwater.backends.redis.client import Call, Redis, script_call
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.notifications import Notifications, Token
from headwater.backends.redis.stream_codec import StreamPage, lease_text
from headwater.errors import BackendUnavailableError, LeaseLostError
from headwater.ports import Lease

# A connection transfers this well within its timeout, even if every partition is full.
_MAX_BYTES = 32 << 20
_MAX_PAGE_BYTES = 4 << 20
_encode = msgspec.json.Encoder().encode


class Prefetcher:
    """The state of each partition: its next page, known to be empty, or unknown."""

    def __init__(self, redis: Redis, keys: Keys, notifications: Notifications) -> None:
        self._redis = redis
        self._keys = keys
        self._notifications = notifications
        self._limit = 0
        self._touches = b"{}"
        self._page_bytes = min(_MAX_PAGE_BYTES, _MAX_BYTES // len(keys.parts))
        self._pages: dict[int, StreamPage] = {}
        self._void: dict[int, Lease] = {}
        self._tasks = PartitionTasks(
            "prefetch", "reading events failed; retrying", notifications.wake_all
        )

    def configure(self, limit: int, touches: Mapping[str, Collection[str]]) -> None:
        """Set the maximum number of events per page, and the entities whose states it includes."""
        self._limit = limit
        self._touches = _encode(touches)

    async def fetch(self, leases: Sequence[Lease]) -> None:
        """Read the next pages of the partitions whose state is unknown."""
        unknown = [lease for lease in leases if self._is_unknown(lease)]
        if self._redis.clustered:
            await self._read_concurrently(unknown, insist=len(unknown) == len(leases))
        else:
            await self._read(unknown)
        for lease in leases:
            if self._void.get(lease.partition) == lease:
                del self._void[lease.partition]
                raise LeaseLostError(lease.partition, lease.owner)

    def _is_unknown(self, lease: Lease) -> bool:
        page = self._pages.get(lease.partition)
        if page is not None and page.lease == lease:
            return False
        return not self._notifications.is_empty(lease.partition)

    async def _read_concurrently(self, leases: Sequence[Lease], *, insist: bool) -> None:
        reads = {lease.partition: partial(self._read, [lease]) for lease in leases}
        is_answered = await self._tasks.run(reads, insist=insist)
        # An empty result would mean that the partitions are empty.
        if reads and insist and not is_answered:
            raise BackendUnavailableError(
                f"no server of the cluster has answered for the partitions {sorted(reads)} yet"
            )

    async def _read(self, leases: Sequence[Lease]) -> None:
        tokens = [self._notifications.token(lease.partition) for lease in leases]
        answers = await self._redis.calls([self.call(lease) for lease in leases])
        for lease, token, answer in zip(leases, tokens, answers, strict=True):
            self.keep(lease, token, answer)

    def call(self, lease: Lease) -> Call:
        """Return the call that reads a partition's next page."""
        keys = self._keys.parts[lease.partition]
        return script_call(
            "read",
            [keys.group, keys.events, keys.idle],
            *(lease_text(lease), self._limit, keys.entity, self._touches, self._page_bytes),
        )

    def keep(self, lease: Lease, token: Token, answer: list[Any] | None) -> None:
        """Keep a page for the next read."""
        self._pages.pop(lease.partition, None)
        if answer is None:
            self._void[lease.partition] = lease
        elif answer[1]:
            self._pages[lease.partition] = StreamPage(lease, *answer)
        else:
            self._notifications.mark_empty(lease.partition, token)

    def take(self, lease: Lease) -> StreamPage | None:
        """Remove and return a partition's page, or return None; its state is then unknown."""
        page = self._pages.get(lease.partition)
        if page is None or page.lease != lease:
            return None
        del self._pages[lease.partition]
        return page

    async def close(self) -> None:
        await self._tasks.close()
