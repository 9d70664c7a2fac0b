"""Train the model of overdrafts on what was known at each past review, and store its weights.

python training.py
"""

import asyncio

import numpy as np
from events import store
from features import weights
from risk_model import fit, probability, signals

REVIEWS = "SELECT customer_id, reviewed_at AS timestamp, overdrawn FROM reviews"
INPUTS = ["balance", "spending_sum_30d", "standing_orders"]


async def train() -> float:
    """Store new weights; return the share of past reviews that they get right."""
    past = (await store.get_historical_features(REVIEWS, INPUTS)).fetchnumpy()
    balance, spent, fixed = (np.ma.filled(past[name].astype(float), 0.0) for name in INPUTS)
    rows, overdrawn = signals(balance, spent, fixed), past["overdrawn"].astype(bool)
    fitted = fit(rows, overdrawn)
    await weights.set("overdraft", fitted)
    return float(np.mean((probability(fitted, rows) > 0.5) == overdrawn))


async def main() -> None:
    async with store:
        await store.drain()  # events that wait, such as those that were loaded just now
        print(f"trained: {await train():.0%} of the past reviews are right")


if __name__ == "__main__":
    asyncio.run(main())
