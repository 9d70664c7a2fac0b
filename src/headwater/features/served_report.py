"""The result of comparing values that contexts have recorded with history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headwater.core.short_repr import short_repr


class ServedDifference(msgspec.Struct, frozen=True):
    """A value that a context got, and the one that history gives as known at that moment."""

    context_id: str
    feature: str
    entity_id: str
    at: datetime
    recorded: Any
    history: Any
    hint: str = ""
    """What in the feature's code makes its value depend on more than its inputs, if anything."""


class ServedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of recorded contexts, and how many of their values history gives as well.

    ``differences`` are examples of the different ones; ``not_compared`` counts the values that
    could not be compared, by reason.
    """

    records: int = 0
    values: int = 0
    equal: int = 0
    different: int = 0
    differences: Sequence[ServedDifference] = ()
    not_compared: Mapping[str, int] = {}

    __repr__ = short_repr("records", "values", "equal", "different")
