"""Helpers of the tests of contexts."""

from __future__ import annotations

from headwater import Context, FeatureStore
from headwater.records.core import Core
from headwater.records.sealing import open_core


async def recorded(store: FeatureStore, context: Context) -> Core:
    """Return the core of a context's record, with every value disclosed."""
    return open_core(await store.get_record(context.context_id))
