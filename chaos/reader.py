"""Reads everything while events are handled; a value and its document belong together."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Self

from chaos.calls import Calls
from chaos.plan import HOT_ACCOUNTS
from headwater import FeatureStore
from headwater.errors import BackendError, RecordingError, UnknownContextError

_PAUSE_SECONDS = 0.05
_MOST_CHUNKS = 100


class Reader:
    """Compares values with documents, and documents with their chunks, inside of its block.

    It also reads history and assembles contexts, whose records must be there in the end.
    """

    def __init__(self, store: FeatureStore, seed: int, calls: Calls) -> None:
        self._store = store
        self._calls = calls
        self._recorded: list[str] = []
        self._random = Random(f"{seed}/reader")
        self.reads = 0
        self.violations: list[str] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if not self.reads:
            self.violations.append("the index could not be read once")

    async def _run(self) -> None:
        """Read again and again; that a server is unavailable is not a violation."""
        while True:
            try:
                await self._read(f"account-{self._random.randrange(HOT_ACCOUNTS)}")
            except (BackendError, RecordingError):
                pass
            else:
                self.reads += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self, account: str) -> None:
        store, settings, timed = self._store, self._store.settings, self._calls.timed
        # What is stored in Postgres waits in Redis before.
        of_both = settings.redis.timeout + settings.postgres.timeout
        with timed("get_feature", settings.redis.timeout):
            count = await store.get_feature("noted", account) or 0
        with timed("get_document", of_both):
            stored = await store.indexes.get_document("notes", account)
        if count > (0 if stored is None else stored.version):
            self.violations.append(f"{account} has {count} notes, but its document is {stored!r}")
        with timed("search", of_both):
            chunks = await store.search("notes", "note", mode="text", top_k=_MOST_CHUNKS)
        own = [chunk for chunk in chunks if chunk.document == account]
        events = {chunk.metadata["event"] for chunk in own}
        positions = sorted(chunk.position or 0 for chunk in own)
        if len(events) > 1 or positions != list(range(len(own))):
            self.violations.append(f"a search found a mixture of versions of {account}: {own}")
        if stored is not None and own and (own[0].version or 0) < stored.version:
            self.violations.append(
                f"a search found an earlier version of {account} than {stored!r}"
            )
        with timed("get_feature_history", of_both):
            await store.get_feature_history("chain", account, limit=1)
        with timed("assemble", settings.redis.timeout + settings.record.timeout):
            made = await store.assemble("summary", {"account_id": account})
        self._recorded.append(made.context_id)

    async def count_lost_records(self) -> int:
        """Return how many contexts have no record, though they were given one."""
        lost = 0
        for context_id in self._recorded:
            try:
                await self._store.get_record(context_id)
            except UnknownContextError:
                lost += 1
        return lost
