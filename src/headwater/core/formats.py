"""Formats of values in templates: the same text on every platform and in every locale. Pure.

A format of numbers and texts is one of Python, such as ``,.2f``, ``.0%`` or ``>10``; one of dates
has directives of ``strftime``, such as ``%d %b %Y``, with English names. Records hold the values
and the formats, so every text can be written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from headwater.core.codec import encode_custom, has_set

WIDEST = 1000
"""The largest width and precision of a format."""

_PLAIN_TYPES = frozenset({str, int, float, bool})
_KEPT_TYPES = (datetime, date, Decimal)
_EXACT = Context()
_SPEC = re.compile(
    r"(?:(?P<fill>.)?(?P<align>[<>=^]))?(?P<sign>[-+ ])?(?P<zero>0)?(?P<width>\d+)?"
    r"(?P<group>[,_])?(?:\.(?P<precision>\d+))?(?P<kind>[deEfFgGs%])?",
    re.ASCII | re.DOTALL,
)
_DIRECTIVE = re.compile(r"%(-?)(.)", re.DOTALL)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


class Spec(NamedTuple):
    """A checked format."""

    is_date: bool
    is_number: bool = False
    kind: str | None = None
    precision: str | None = None


@lru_cache(4096)
def parse_spec(text: str) -> Spec:
    """Check a format; raise ValueError with the problem if it can never be used."""
    directives = [match[2] for match in _DIRECTIVE.finditer(text)]
    if directives:
        unknown = [name for name in directives if name not in _DIRECTIVES and name != "%"]
        if unknown or text.count("%") != len(directives) + directives.count("%"):
            known = " ".join(f"%{name}" for name in _DIRECTIVES)
            raise ValueError(f"the directives of dates are {known} and %% for a percent sign")
        return Spec(is_date=True)
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ValueError("formats are such as ',.2f', '.0%', '>10' or '%d %b %Y'")
    for part in ("width", "precision"):
        digits = match[part] or ""
        if len(digits) > len(str(WIDEST)) or int(digits or 0) > WIDEST:
            raise ValueError(f"its {part} is above {WIDEST}")
    kind = match["kind"]
    is_number = match["align"] == "=" or kind not in (None, "s")
    is_number |= any(match[part] for part in ("sign", "zero", "group"))
    try:
        format(0 if kind == "d" else 0.0 if is_number else "", text)
    except ValueError as error:
        raise ValueError(str(error).lower()) from error
    return Spec(is_date=False, is_number=is_number, kind=kind, precision=match["precision"])


def as_text(value: object) -> str:
    """Write a value without a format."""
    if isinstance(value, datetime):
        return value.isoformat()
    # Enums, dates, decimals and similar types become the text or number of their JSON form.
    is_plain = type(value) in _PLAIN_TYPES
    plain = value if is_plain else _builtins(value)
    if isinstance(plain, str | int | float):
        return str(plain)
    return msgspec.json.encode(plain).decode()


def formatted(value: object, text: str) -> str:
    """Write a value by a format; raise ValueError if it does not fit the type of the value.

    A value is written like its form in a record. Width and cutting apply to the text of any value.
    """
    spec = parse_spec(text)
    if type(value) not in _PLAIN_TYPES:
        value = _builtins(value, _KEPT_TYPES)
    if spec.is_date:
        return _format_date(value, text)
    is_number = isinstance(value, int | float | Decimal)
    if not is_number or spec.kind == "s" or (isinstance(value, bool) and not spec.is_number):
        if spec.is_number:
            raise ValueError("it is for numbers")
        return format(as_text(value), text)
    if isinstance(value, Decimal):
        return _format_decimal(value, text, spec)
    try:
        return format(value, text)
    except OverflowError as error:
        raise ValueError("the number is too large for it") from error


def _builtins(value: object, kept: tuple[type, ...] = ()) -> Any:
    """Return a value in builtin types, with sets in an order that is the same in each process."""
    order: Literal["deterministic"] | None = "deterministic" if has_set(value) else None
    return msgspec.to_builtins(value, builtin_types=kept, order=order, enc_hook=encode_custom)


def _format_decimal(value: Decimal, text: str, spec: Spec) -> str:
    exponent = value.as_tuple().exponent
    if spec.kind in ("f", "F", "%") and isinstance(exponent, int):
        is_tiny = spec.precision is None and exponent < -WIDEST
        if value.adjusted() > WIDEST or is_tiny:
            raise ValueError(f"the number has more than {WIDEST} digits")
    with localcontext(_EXACT):  # user code may have set another rounding
        return format(value, text)


def _format_date(value: object, text: str) -> str:
    if not isinstance(value, date):
        raise ValueError("it is for dates")

    def write(match: re.Match[str]) -> str:
        flag, name = match.groups()
        if name == "%":
            return "%"
        if name in _TIMES and not isinstance(value, datetime):
            raise ValueError(f"a date has no time for %{name}")
        written = _DIRECTIVES[name](value)
        return (written.lstrip("0") or "0") if flag and written.isdigit() else written

    return _DIRECTIVE.sub(write, text)


def _offset(separator: str, prefix: str) -> Callable[[datetime], str]:
    def write(value: datetime) -> str:
        offset = value.utcoffset()
        if offset is None or (prefix and not offset):
            return "" if offset is None else prefix
        minutes = abs(offset) // timedelta(minutes=1)
        sign = "-" if offset < timedelta(0) else "+"
        return f"{prefix}{sign}{minutes // 60:02}{separator}{minutes % 60:02}"

    return write


_DATES: Mapping[str, Callable[[Any], str]] = {
    "Y": lambda value: f"{value.year:04}",
    "y": lambda value: f"{value.year % 100:02}",
    "m": lambda value: f"{value.month:02}",
    "d": lambda value: f"{value.day:02}",
    "j": lambda value: f"{value.timetuple().tm_yday:03}",
    "B": lambda value: _MONTHS[value.month - 1],
    "b": lambda value: _MONTHS[value.month - 1][:3],
    "A": lambda value: _DAYS[value.weekday()],
    "a": lambda value: _DAYS[value.weekday()][:3],
}
_TIMES: Mapping[str, Callable[[Any], str]] = {
    "H": lambda value: f"{value.hour:02}",
    "I": lambda value: f"{value.hour % 12 or 12:02}",
    "M": lambda value: f"{value.minute:02}",
    "S": lambda value: f"{value.second:02}",
    "f": lambda value: f"{value.microsecond:06}",
    "p": lambda value: "AM" if value.hour < 12 else "PM",
    # By the offset, because a record does not hold the name of a time zone.
    "z": _offset("", ""),
    "Z": _offset(":", "UTC"),
}
_DIRECTIVES = {**_DATES, **_TIMES}
