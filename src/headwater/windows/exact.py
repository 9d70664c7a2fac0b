"""Sums of floats without any error, so that the order of the additions does not matter.

A sum is a list of floats that do not overlap, whose sum it is (Shewchuk 1997): two or three of
them for amounts of money. A sum beyond the range of floats is one whole number instead, as a
hexadecimal text in units of 2^-2148, the square of the smallest float.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from itertools import chain
from typing import Any

Exact = list[Any]
"""Floats, or one text."""

UNITS = 2148
LARGEST = sys.float_info.max
_ROOT_BITS = 500
_SPLITTER = 134217729.0
"""2^27 + 1, which splits a float into two halves whose products are exact."""
_SMALLEST, _LARGEST = 2.0**-480, 2.0**480
"""Between them, the square of a float and its rounding error are floats."""


def add(total: Exact, value: float) -> Exact:
    """Return the sum of a sum and a number."""
    if total and type(total[0]) is str:
        return _text(units([total, [value]]))
    partials = []
    number = value
    for partial in total:
        high = number + partial
        part = high - number
        low = (number - (high - part)) + (partial - part)
        if low:
            partials.append(low)
        number = high
    if number - number:  # It is not finite.
        return _text(units([total, [value]]))
    if number:
        partials.append(number)
    return partials


def add_square(total: Exact, value: float) -> Exact:
    """Return the sum of a sum and the square of a number."""
    size = abs(value)
    if not _SMALLEST < size < _LARGEST:
        square = (_units(value) ** 2) >> UNITS
        return _text(units([total]) + square) if value else total
    product = size * size
    high = size * _SPLITTER
    high -= high - size
    low = size - high
    return add(add(total, product), ((high * high - product) + 2.0 * high * low) + low * low)


def join(totals: Iterable[Exact]) -> Exact:
    """Return the sum of sums."""
    result: Exact = []
    for part in chain.from_iterable(totals):
        result = _text(units([result, [part]])) if type(part) is str else add(result, part)
    return result


def compact(total: Exact) -> Exact:
    """Return a sum as the fewest floats: each is the one next to what those before it leave."""
    parts: Exact = []
    try:
        while rest := math.fsum([*total, *(-part for part in parts)]):
            parts.append(rest)
    except (OverflowError, TypeError):  # It is one whole number, or nearly so large.
        return total
    return parts[::-1]


def units(totals: Iterable[Exact]) -> int:
    """Return the sum of sums in units of 2^-2148."""
    return sum(map(_units, chain.from_iterable(totals)))


def rounded(totals: Iterable[Exact]) -> float:
    """Return the float next to the sum of sums."""
    try:
        return math.fsum(chain.from_iterable(totals))
    except (OverflowError, TypeError):
        # A part of it is beyond the range of floats; the sum need not be.
        return quotient(units(totals), 1 << UNITS)


def quotient(numerator: float, denominator: int) -> float:
    """Return the float next to a quotient: the largest one if it is beyond all floats."""
    try:
        return numerator / denominator
    except OverflowError:
        return LARGEST if numerator > 0 else -LARGEST


def root(numerator: int, denominator: int) -> float:
    """Return the square root of a quotient, which may be beyond all floats itself."""
    halved = max(0, (numerator.bit_length() - denominator.bit_length()) // 2 - _ROOT_BITS)
    try:
        return math.ldexp(math.sqrt(numerator / (denominator << 2 * halved)), halved)
    except OverflowError:
        return LARGEST


def _units(part: float | str) -> int:
    if isinstance(part, str):
        return int(part, 16)
    numerator, denominator = part.as_integer_ratio()
    return numerator << (UNITS + 1 - denominator.bit_length())


def _text(number: int) -> list[str]:
    return [f"{number:x}"]
