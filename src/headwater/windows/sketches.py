"""Small summaries of many values that can be merged exactly, in any order.

Different values are counted exactly up to 128, and by a HyperLogLog of 512 registers beyond.
Percentiles are those of a histogram with a fixed relative width (DDSketch). Neither depends on a
function of the platform's math library, so all machines give the same bits.
"""

from __future__ import annotations

import math
from base64 import b64encode
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any

import msgspec

MOST_EXACT = 128
"""The number of different values up to which a tile counts them exactly."""
DISTINCT_ERROR = 0.046
"""The standard error of a number of different values that is estimated: 1.04 / √512."""
PERCENTILE_ERROR = 0.01
"""The largest relative error of a percentile."""

_ENCODE = msgspec.json.Encoder(order="deterministic").encode
_DIGITS = 16
"""The length of a hash of 64 bits."""
_REGISTER_BITS = 9
_REGISTERS = 1 << _REGISTER_BITS
_RANK_BITS = 64 - _REGISTER_BITS
_MARK = "~"
"""Begins the text of registers; the text of a set of hashes has none."""

_PARTS = 35
"""The number of bins between a power of 2 and the next: the width of a bin is less than 2 %."""
_EDGES = [round(2 ** (part / _PARTS - 1), 12) for part in range(_PARTS)] + [1.0]
_MIDDLES = [2 * low * high / (low + high) for low, high in pairwise(_EDGES)]
_EXPONENTS = 1_080
"""Added to the exponent of a float, which is -1073 or more, so that bins have positive numbers."""


def add_distinct(seen: str | None, value: Any) -> str:
    """Return the text of the different values with one more of them."""
    hashed = blake2b(_ENCODE(value), digest_size=_DIGITS // 2).hexdigest()
    if seen is None:
        return hashed
    if seen[0] == _MARK:
        registers = bytearray(a2b_base64(seen[1:]))
        index, rank = _register(int(hashed, 16))
        if registers[index] >= rank:
            return seen
        registers[index] = rank
        return _MARK + b64encode(registers).decode()
    place = bisect_left(
        range(len(seen) // _DIGITS),
        hashed,
        key=lambda number: seen[number * _DIGITS : (number + 1) * _DIGITS],
    )
    start = place * _DIGITS
    if seen[start : start + _DIGITS] == hashed:
        return seen
    return _distinct_text(seen[:start] + hashed + seen[start:])


def join_distinct(texts: Iterable[str]) -> str:
    """Return the text of the different values of several texts."""
    texts = list(texts)
    if any(text[0] == _MARK for text in texts):
        return _MARK + b64encode(_registers(texts)).decode()
    return _distinct_text("".join(sorted({hashed for text in texts for hashed in _hashes(text)})))


def count_distinct(texts: Iterable[str]) -> int:
    """Return the number of different values of several texts: exact if all of them are sets."""
    texts = list(texts)
    if any(text[0] == _MARK for text in texts):
        return round(_estimate(_registers(texts)))
    hashes: set[int] = set()
    for text in texts:
        hashes.update(memoryview(bytes.fromhex(text)).cast("Q"))
    return len(hashes)


def _hashes(text: str) -> list[str]:
    return [text[start : start + _DIGITS] for start in range(0, len(text), _DIGITS)]


def _distinct_text(hashes: str) -> str:
    """Return hashes in order, or the registers of too many."""
    if len(hashes) <= MOST_EXACT * _DIGITS:
        return hashes
    return _MARK + b64encode(_registers([hashes])).decode()


def _register(hashed: int) -> tuple[int, int]:
    rest = hashed & ((1 << _RANK_BITS) - 1)
    return hashed >> _RANK_BITS, _RANK_BITS + 1 - rest.bit_length()


def _registers(texts: Sequence[str]) -> bytes:
    own = bytearray(_REGISTERS)
    others = [bytes(own)]
    for text in texts:
        if text[0] == _MARK:
            others.append(a2b_base64(text[1:]))
            continue
        for hashed in _hashes(text):
            index, rank = _register(int(hashed, 16))
            own[index] = max(own[index], rank)
    return bytes(map(max, own, *others))


def _estimate(registers: bytes) -> float:
    """Return the number of values by Ertl's estimator, which is not biased for any number."""
    numbers = Counter(registers)
    total = _REGISTERS * _tau(1.0 - numbers[_RANK_BITS + 1] / _REGISTERS)
    for rank in range(_RANK_BITS, 0, -1):
        total = 0.5 * (total + numbers[rank])
    total += _REGISTERS * _sigma(numbers[0] / _REGISTERS)
    return _REGISTERS * _REGISTERS / (2.0 * 0.6931471805599453 * total)


def _sigma(x: float) -> float:
    if x == 1.0:
        return math.inf
    factor, total, last = 1.0, x, -1.0
    while total != last:
        x *= x
        last = total
        total += x * factor
        factor += factor
    return total


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    factor, total, last = 1.0, 1.0 - x, -1.0
    while total != last:
        x = math.sqrt(x)
        last = total
        factor *= 0.5
        total -= (1.0 - x) ** 2 * factor
    return total / 3.0


def add_to_bins(bins: list[Any], value: float) -> None:
    """Add a value to bins: the least and the greatest value, then the bins that have values.

    These are in order, each a number that is followed by the count of its values.
    """
    number = _bin(value)
    if not bins:
        bins[:] = [value, value, number, 1]
        return
    if value < bins[0]:
        bins[0] = value
    elif value > bins[1]:
        bins[1] = value
    index = 2 + 2 * bisect_left(bins[2::2], number)
    if index < len(bins) and bins[index] == number:
        bins[index + 1] += 1
    else:
        bins[index:index] = [number, 1]


def join_bins(several: Iterable[list[Any]]) -> list[Any]:
    """Return bins with the values of several."""
    several = list(several)
    counts: dict[int, int] = {}
    for bins in several:
        for number, count in zip(bins[2::2], bins[3::2], strict=True):
            counts[number] = counts.get(number, 0) + count
    ends = [min(bins[0] for bins in several), max(bins[1] for bins in several)]
    return [*ends, *(part for number in sorted(counts) for part in (number, counts[number]))]


def percentile(bins: list[Any], percent: int) -> float:
    """Return the least value that at least a part of all values does not exceed.

    That is SQL's PERCENTILE_DISC, at most as far from it as the middle of its bin, and never below
    the least value or above the greatest. At least one value must be in the bins.
    """
    least, greatest, *counted = bins
    ends = list(accumulate(counted[1::2]))
    rank = -(-percent * ends[-1] // 100)
    found = _middle(counted[2 * bisect_left(ends, rank)])
    return float(min(max(found, least), greatest))


def _bin(value: float) -> int:
    if not value:
        return 0
    mantissa, exponent = math.frexp(abs(value))
    number = (exponent + _EXPONENTS) * _PARTS + bisect_right(_EDGES, mantissa)
    return number if value > 0 else -number


def _middle(number: int) -> float:
    if not number:
        return 0.0
    exponent, part = divmod(abs(number) - 1, _PARTS)
    return math.copysign(math.ldexp(_MIDDLES[part], exponent - _EXPONENTS), number)
