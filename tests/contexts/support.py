"""What tests of contexts share besides their store."""

from __future__ import annotations

from headwater import Context, FeatureStore
from headwater.records.core import Core
from headwater.records.sealing import open_core


async def recorded(store: FeatureStore, context: Context) -> Core:
    """What the record of a context says, with every value disclosed."""
    return open_core(await store.get_record(context.context_id))
