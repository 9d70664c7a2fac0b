"""Train the model of fraud on what was known at each payment: `python train.py`."""

import asyncio

import joblib
import numpy as np
from fraud import INPUTS, MODEL, store
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

TRAINING = 0.7
"""The share of payments, the earliest ones, that the model is trained on."""
LABELS = """
    SELECT paid.entity_id AS card_id, paid."timestamp", back.entity_id IS NOT NULL AS is_fraud
    FROM events AS paid
    LEFT JOIN events AS back
      ON back.event_type = 'chargeback'
     AND (back.payload ->> 'payment_id') = (paid.payload ->> 'payment_id')
    WHERE paid.event_type = 'payment'
    ORDER BY paid."timestamp"
"""


async def training_set() -> tuple[np.ndarray, np.ndarray]:
    """Return the features as they were at each payment, and whether it was fraud."""
    past = (await store.get_historical_features(LABELS, INPUTS)).fetchnumpy()
    rows = np.stack([np.ma.filled(past[name].astype(float), 0.0) for name in INPUTS], axis=1)
    return rows, past["is_fraud"].astype(bool)


def fit(rows: np.ndarray, is_fraud: np.ndarray) -> Pipeline:
    """Return a trained model."""
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, is_fraud)


async def main() -> None:
    async with store:
        await store.drain()  # events that wait, such as those that were loaded just now
        rows, is_fraud = await training_set()
    last = round(TRAINING * len(rows))
    scores = fit(rows[:last], is_fraud[:last]).predict_proba(rows[last:])[:, 1]
    precision = average_precision_score(is_fraud[last:], scores)
    print(f"{len(rows)} payments, {is_fraud.sum()} of them fraud")
    print(f"average precision on the last {len(scores)}: {precision:.2f}")
    joblib.dump(fit(rows, is_fraud), MODEL)


if __name__ == "__main__":
    asyncio.run(main())
