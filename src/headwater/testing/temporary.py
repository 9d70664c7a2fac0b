"""A store in a temporary folder, for the length of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

from headwater.core.clock import Clock
from headwater.declarations.runtime import runtime_of
from headwater.store.feature_store import FeatureStore


@asynccontextmanager
async def temporary(store: FeatureStore, clock: Clock | None = None) -> AsyncIterator[FeatureStore]:
    """Moves a store, with everything declared on it, into an empty folder that is removed again.

    The store is embedded inside, whatever the environment says, and afterwards what it was
    before. Give it a ManualClock to decide what time it is.
    """
    settings, real = store.settings, store.clock
    with TemporaryDirectory(prefix="headwater-") as home:
        embedded = settings.replace(
            home=home, env="development", redis={"url": ""}, postgres={"url": ""}
        )
        await runtime_of(store).rebind(embedded, clock or real)
        try:
            yield store
        finally:
            await runtime_of(store).rebind(settings, real)
