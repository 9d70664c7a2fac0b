"""Checks of a store in the background, so that probes are answered even if a server hangs."""

from __future__ import annotations

import asyncio
import time

from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError
from headwater.model.health import Health
from headwater.ports import HealthCheck
from headwater.store.feature_store import FeatureStore

_ANSWER_SECONDS = 0.8
_FRESH_SECONDS = 1.0


class StoreProbe:
    """The health of each part of a store, checked at most once a second.

    A part that does not answer in time has failed. Its check goes on, and the next answer waits for
    that check instead of starting another one.
    """

    def __init__(self, store: FeatureStore) -> None:
        self._runtime = runtime_of(store)
        self._round: asyncio.Task[list[Health]] | None = None
        self._fresh_until = 0.0
        self._checking: dict[str, asyncio.Task[Health]] = {}

    async def parts(self) -> list[Health]:
        """Return the health of each part, at most about a second old."""
        if self._round is None or (self._round.done() and time.monotonic() > self._fresh_until):
            self._round = asyncio.create_task(self._check_all())
        return await asyncio.shield(self._round)

    async def _check_all(self) -> list[Health]:
        deadline = time.monotonic() + _ANSWER_SECONDS
        opened = await self._check(HealthCheck("store", self._open), deadline)
        parts = [opened]
        if opened.ok:
            checks = (await self._runtime.open()).backends.lifecycle.checks()
            parts = await asyncio.gather(*(self._check(check, deadline) for check in checks))
        self._fresh_until = time.monotonic() + _FRESH_SECONDS
        return parts

    async def _open(self) -> Health:
        try:
            await self._runtime.open()
        except BackendError as error:
            return Health("store", ok=False, detail=str(error))
        return Health("store", ok=True)

    async def _check(self, check: HealthCheck, deadline: float) -> Health:
        task = self._checking.get(check.name)
        if task is None or task.done():
            task = self._checking[check.name] = asyncio.create_task(_run(check))
        await asyncio.wait({task}, timeout=max(0.0, deadline - time.monotonic()))
        if task.done():
            return task.result()
        detail = f"did not answer within {_ANSWER_SECONDS:g} s; check its load and the network"
        return Health(check.name, ok=False, detail=detail, needed=check.needed)


async def _run(check: HealthCheck) -> Health:
    return await check.run()
