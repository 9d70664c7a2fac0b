"""The features file that is deployed during a run: all features of the first one, and another."""

from __future__ import annotations

from chaos.features import Account, store
from chaos.plan import CHAINED
from headwater import ServiceEvent, feature

Run = tuple[int, int]
"""The numbers of the first and the last of an account's events that were handled in a row."""


@feature(entity=Account, trigger=CHAINED)
async def deployed(account_id: str, event: ServiceEvent) -> Run:
    """Begin a new run after each lost, doubled or reordered event."""
    number: int = event.payload["number"]
    first, last = await store.get_feature("deployed", account_id) or (number, number - 1)
    return (first if number == last + 1 else number), number
