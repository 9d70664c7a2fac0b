"""The features file of a backfill under chaos: its values show lost and repeated events."""

from __future__ import annotations

import asyncio

import msgspec

from headwater import FeatureStore, ServiceEvent, entity, feature

_LAST = 5
_HANDLER_SECONDS = 0.0005

store = FeatureStore()


@entity(store)
class Account:
    """An account whose events are numbered."""

    account_id: str


class Seen(msgspec.Struct, frozen=True):
    """How many events an account had, and the ids of the last ones."""

    count: int = 0
    last: list[str] = []


@feature(entity=Account, trigger="step", default=Seen())
async def seen(account_id: str, event: ServiceEvent) -> Seen:
    """Count the events of an account."""
    before: Seen = await store.get_feature("seen", account_id)
    await asyncio.sleep(_HANDLER_SECONDS)
    return Seen(before.count + 1, [*before.last, event.event_id][-_LAST:])
