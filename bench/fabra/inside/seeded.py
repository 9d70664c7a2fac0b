"""The features file that `fabra serve` is given: Fabra's memory filled with what will be read."""
# mypy: disable-error-code="import-not-found"

import asyncio

from fabra_features import store

IDS = 100


async def seed() -> None:
    for number in range(IDS):
        await store.online_store.set_online_features("User", f"u{number}", {"total_spend": 1.5})


asyncio.run(seed())
