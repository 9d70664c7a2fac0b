"""Patterns of errors: errors that differ only in ids, numbers and texts have the same one."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST = 300
_VARIABLE = {
    # A name, such as the key of a KeyError, stays: it tells errors apart.
    r"\g<1><text>\1": r"(['\"])(?![\w.-]*\1)[^'\"]*\1",
    "<id>": r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b",
    "<time>": r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?)?",
    "<n>": r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?",
}
_REPLACED = [(re.compile(pattern, re.IGNORECASE), name) for name, pattern in _VARIABLE.items()]


@lru_cache(maxsize=4096)
def error_pattern(error: str) -> str:
    """Return the first line of an error, with a placeholder for each part that varies.

    >>> error_pattern("ValueError: order 17 of 'Ada Lovelace' is not 4.5")
    "ValueError: order <n> of '<text>' is not <n>"
    >>> error_pattern("KeyError: 'item'")
    "KeyError: 'item'"
    """
    line = error.split("\n", 1)[0][:_LONGEST]
    for pattern, placeholder in _REPLACED:
        line = pattern.sub(placeholder, line)
    return line
