"""Filters of metadata, computed as sets of metadata ids."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.chunk_columns import Integers
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.metadata_values import condition
from headwater.ports import AllOf, AnyOf, Compare, Filter, Not

Mask = NDArray[np.bool_]


def meeting(home: Home, index_id: int, filters: Filter, metadata_ids: Integers) -> Mask:
    """Return which of the rows with these metadata meet a filter."""
    if not len(metadata_ids):
        return np.zeros(0, np.bool_)
    lowest = int(metadata_ids.min())
    size = int(metadata_ids.max()) - lowest + 1

    def of(condition_: Filter) -> Mask:
        match condition_:
            case Compare():
                return _holding(home, index_id, condition_, lowest, size)
            case AllOf():
                return reduce(np.logical_and, map(of, condition_.conditions), np.ones(size, bool))
            case AnyOf():
                return reduce(np.logical_or, map(of, condition_.conditions), np.zeros(size, bool))
            case Not():
                return ~of(condition_.condition)

    return of(filters)[metadata_ids - lowest]


def _holding(home: Home, index_id: int, compare: Compare, lowest: int, size: int) -> Mask:
    where, arguments = condition(compare)
    # One text instead of a row for each: SQLite joins ids, and NumPy parses them, without Python.
    sql = (
        f"SELECT group_concat(metadata_id - ?, ' ') FROM metadata_values WHERE index_id = ?"
        f" AND metadata_id BETWEEN ? AND ? AND {where}"
    )
    bounds = (lowest, index_id, lowest, lowest + size - 1)
    ((found,),) = home.read(sql, (*bounds, *arguments))
    mask = np.zeros(size, np.bool_)
    if found is not None:
        mask[np.fromstring(found, np.int64, sep=" ")] = True
    return mask
