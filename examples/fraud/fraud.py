"""Features of cards for a model of fraud: what a card paid within an hour and within a month.

headwater events load payments.jsonl    begin with the past that `past.py` makes up
python train.py                         train the model on what was known at each payment
headwater serve                         score cards as payments arrive
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Any

import joblib
from msgspec import Meta

from headwater import Event, FeatureStore, entity, event, feature

MODEL = Path("model.joblib")
INPUTS = [
    "payments_count_1h",
    "payments_sum_1h",
    "payments_max_30d",
    "payments_avg_30d",
    "shops_distinct_1h",
]
"""What the model looks at, in this order, in training and in serving."""

store = FeatureStore()


@entity(store)
class Card:
    card_id: str


@event(store, "payment")
class Payment:
    payment_id: str
    amount: Annotated[float, Meta(gt=0)]
    shop: str


@event(store, "chargeback")
class Chargeback:
    """The owner of a card says, often days later, that a payment was not theirs."""

    payment_id: str


@feature(
    entity=Card,
    trigger="payment",
    window=["1h", "30d"],
    aggregate=["count", "sum", "max", "avg"],
    default=0.0,
)
def payments(card_id: str, event: Event[Payment]) -> float:
    """Amounts of payments; each aggregate of each window is a feature."""
    return event.payload.amount


@feature(entity=Card, trigger="payment", window="1h", aggregate="distinct")
def shops(card_id: str, event: Event[Payment]) -> str:
    """Shops in which a card pays."""
    return event.payload.shop


@cache
def model() -> Any:
    """Return the trained model, if there is one; a process takes a newer one when it restarts."""
    return joblib.load(MODEL) if MODEL.exists() else None


@feature(entity=Card, derived=True)
async def fraud_score(card_id: str) -> float | None:
    """The probability that the last payment is fraud; None until a model is trained."""
    if (trained := model()) is None:
        return None
    values = (await store.get_features(INPUTS, [card_id]))[card_id]
    row = [[values[name] for name in INPUTS]]
    return round(float(trained.predict_proba(row)[0, 1]), 3)
