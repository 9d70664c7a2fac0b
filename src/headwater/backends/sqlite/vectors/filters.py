"""Filters of metadata, computed as sets of metadata ids."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors.chunk_columns import Integers
from headwater.backends.sqlite.vectors.metadata_values import conditions
from headwater.ports import AllOf, AnyOf, Compare, Filter, Not

Mask = NDArray[np.bool_]


def meeting(home: Home, index_id: int, filters: Filter, metadata_ids: Integers) -> Mask:
    """Return which of the rows with these metadata meet a filter."""
    if not len(metadata_ids):
        return np.zeros(0, np.bool_)
    lowest = int(metadata_ids.min())
    size = int(metadata_ids.max()) - lowest + 1

    def of(condition: Filter) -> Mask:
        match condition:
            case Compare():
                return _holding(home, index_id, condition, lowest, size)
            case AllOf():
                return reduce(np.logical_and, map(of, condition.conditions), np.ones(size, bool))
            case AnyOf():
                return reduce(np.logical_or, map(of, condition.conditions), np.zeros(size, bool))
            case Not():
                return ~of(condition.condition)

    return of(filters)[metadata_ids - lowest]


def _holding(home: Home, index_id: int, compare: Compare, lowest: int, size: int) -> Mask:
    mask = np.zeros(size, np.bool_)
    for condition, arguments in conditions(compare):
        # One text instead of a row for each: SQLite joins ids and NumPy parses them.
        sql = (
            "SELECT group_concat(metadata_id - ?, ' ') FROM metadata_values"
            f" WHERE index_id = ? AND metadata_id BETWEEN ? AND ? AND {condition}"
        )
        bounds = (lowest, index_id, lowest, lowest + size - 1)
        ((positions,),) = home.read(sql, (*bounds, *arguments))
        mask[np.fromstring(positions or "", np.int64, sep=" ")] = True
    return mask
