"""A store described by its features file, which any process can open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.features.services import Services
from headwater.settings.schema import Settings
from headwater.store.loader import load_store


class FeaturesFile(msgspec.Struct, frozen=True):
    """A features file, by path or module name, and the settings to open its store with."""

    target: str
    settings: Settings

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Services]:
        """Load the file and open its store in the running event loop."""
        runtime = runtime_of(load_store(self.target))
        await runtime.rebind(self.settings, SystemClock())
        try:
            yield await runtime.open()
        finally:
            await runtime.close()
