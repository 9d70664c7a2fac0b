"""ImportReport: the numbers of an import."""

from __future__ import annotations

import msgspec

from headwater.core.short_repr import short_repr


class ImportReport(msgspec.Struct, frozen=True):
    """The number of rows that were read, of their values, and of missing values."""

    rows: int
    values: int
    added: int
    """The values that were not in history before."""
    missing: int
    erased: int = 0
    """The values that were left out, because their entities were erased."""

    __repr__ = short_repr("rows", "values", "added", "missing")
