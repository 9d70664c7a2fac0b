"""Lists of numbers as short texts that are decoded fast: base64 of their machine form.

Every list has a code: that of `array` for numbers, a ``D`` for each float of the longest sum for
exact sums, and ``j`` for anything else, which is JSON.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from headwater.windows.exact import compact

Column = tuple[str, msgspec.Raw]

_DECODE_BYTES = msgspec.json.Decoder(bytes).decode
_DECODE_LIST = msgspec.json.Decoder(list[Any]).decode
_ENCODE = msgspec.json.Encoder().encode
_LIMITS = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32), ("Q", 1 << 64))
_USUAL = 3


def pack(values: Sequence[Any]) -> Column:
    """Return the code and the text of a list."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return _packed("d", values)
    if kinds == {int} and min(values) >= 0:
        most = max(values)
        for code, limit in _LIMITS:
            if most < limit:
                return _packed(code, values)
    if kinds == {list} and set(map(type, chain.from_iterable(values))) == {float}:
        sums = [row if len(row) < _USUAL else compact(row) for row in values]
        width = max(map(len, sums))
        padded = [part for row in sums for part in (*row, *[0.0] * (width - len(row)))]
        return _packed("D" * width, padded)
    return "j", msgspec.Raw(_ENCODE(values))


def unpack(column: Column) -> list[Any]:
    """Return the list that was packed."""
    code, text = column
    if code[0] != "D":
        return tail(column, 0)
    numbers, width = _numbers(code, text), len(code)
    starts = range(0, len(numbers), width)
    return [[part for part in numbers[start : start + width] if part] for start in starts]


def tail(column: Column, start: int) -> list[Any]:
    """Return the entries from a position on; of exact sums, the sum of all."""
    code, text = column
    if code == "j":
        return _DECODE_LIST(text)[start:]
    numbers = _numbers(code, text)
    if code[0] == "D":
        return [numbers[start * len(code) :]]
    return numbers[start:].tolist()


def _numbers(code: str, text: msgspec.Raw) -> array[Any]:
    return array("d" if code[0] == "D" else code, _DECODE_BYTES(text))


def _packed(code: str, values: Sequence[Any]) -> Column:
    kind = "d" if code[0] == "D" else code
    return code, msgspec.Raw(_ENCODE(array(kind, values).tobytes()))
