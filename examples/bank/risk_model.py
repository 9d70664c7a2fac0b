"""A model of overdrafts: what it looks at, how it scores, and how it is fitted."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

UNTRAINED = [0.0, 0.0, 0.0]


def signals(balance: ArrayLike, spent: ArrayLike, fixed: ArrayLike) -> np.ndarray:
    """Return a row for each customer: 1, months that the money lasts, and the share spent."""
    money, paid = np.asarray(balance, dtype=float), np.asarray(spent, dtype=float)
    months = money / np.maximum(paid + np.asarray(fixed, dtype=float), 1.0)
    share = paid / np.maximum(money + paid, 1.0)
    return np.stack([np.ones_like(months), months.clip(-3, 3), share.clip(0, 3)], axis=-1)


def probability(weights: Sequence[float], rows: np.ndarray) -> np.ndarray:
    """Return the probability of an overdraft for each row."""
    scores = rows @ np.asarray(weights)
    return np.asarray(1 / (1 + np.exp(-scores)))


def fit(rows: np.ndarray, overdrawn: ArrayLike, steps: int = 5_000) -> list[float]:
    """Return the weights of a logistic regression, fitted by gradient descent."""
    labels, weights = np.asarray(overdrawn, dtype=float), np.array(UNTRAINED)
    for _ in range(steps):
        error = probability(weights.tolist(), rows) - labels
        weights -= 0.5 * (rows.T @ error / len(labels) + 1e-3 * weights)
    return [round(float(weight), 4) for weight in weights]
