"""The header Retry-After: how long a server asks its clients to wait."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime


def retry_after_seconds(text: str, now: datetime) -> float | None:
    """Return the seconds of a number or until a date, at least 0; None if it is neither."""
    try:
        seconds = float(text)
    except ValueError:
        return _until(text, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str, now: datetime) -> float | None:
    try:
        return max(0.0, (parsedate_to_datetime(date) - now) / timedelta(seconds=1))
    except (TypeError, ValueError):
        return None
