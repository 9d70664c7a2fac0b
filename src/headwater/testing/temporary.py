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
    """Run a store, with all its declarations, in an empty temporary folder.

    Inside the block the store is embedded, regardless of its settings; afterwards it has its
    original settings and clock again. Pass a ManualClock to control the time.
    """
    settings, real = store.settings, runtime_of(store).clock
    with TemporaryDirectory(prefix="headwater-") as home:
        embedded = settings.replace(
            home=home, env="development", redis={"url": ""}, postgres={"url": ""}
        )
        await runtime_of(store).rebind(embedded, clock or real)
        try:
            yield store
        finally:
            await runtime_of(store).rebind(settings, real)
