"""The values of windows as the documentation defines them, from the list of all contributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from headwater.windows.plan import Aggregate, Member, Window, WindowPlan, parse_aggregate

SECOND = 1_000_000


class Contribution(NamedTuple):
    value: Any
    key: str | None
    at: int
    written_at: int


def window(span: int, hop: int) -> Window:
    return Window(f"{span}by{hop}", span, hop)


def plan_of(
    windows: Sequence[Window],
    aggregates: Iterable[str],
    *,
    is_int: bool = False,
    max_keys: int | None = None,
) -> WindowPlan:
    return WindowPlan(
        tuple(windows),
        tuple(parse_aggregate(text) for text in aggregates),
        is_int=is_int,
        is_keyed=max_keys is not None,
        max_keys=max_keys or 0,
    )


def members_of(plan: WindowPlan) -> list[Member]:
    return [Member(window, aggregate) for window in plan.windows for aggregate in plan.aggregates]


def value_of(
    plan: WindowPlan, member: Member, contributions: Iterable[Contribution], moment: int
) -> Any:
    """Return the value of a member at a moment; distinct and percentiles without any error."""
    window, aggregate = member
    first = (moment - window.span) // window.hop
    covered = sorted(
        (one for one in contributions if one.at // window.hop >= first),
        key=lambda one: (one.at, one.written_at),
    )
    if not plan.is_keyed:
        return _aggregate(plan, aggregate, window, covered)
    keys = sorted({str(one.key) for one in covered} - {"other"})[: plan.max_keys]
    by_key: dict[str, list[Contribution]] = {}
    for one in covered:
        by_key.setdefault(one.key if one.key in keys else "other", []).append(one)
    values = {key: _aggregate(plan, aggregate, window, some) for key, some in by_key.items()}
    return {key: value for key, value in values.items() if value is not None}


def _aggregate(
    plan: WindowPlan, aggregate: Aggregate, window: Window, covered: list[Contribution]
) -> Any:
    values = [one.value for one in covered]
    if aggregate.kind == "count":
        return len(values)
    if aggregate.kind == "rate":
        return float(len(values) / Fraction(window.span, SECOND))
    if aggregate.kind == "distinct":
        # Zeros are equal, whatever their sign.
        equal = (value + 0.0 if type(value) is float else value for value in values)
        return len(set(map(msgspec.json.encode, equal)))
    if aggregate.kind == "sum":
        return sum(values) if plan.is_int else float(sum(map(Fraction, values)))
    if not values or (aggregate.kind == "stddev" and len(values) < 2):
        return None
    return _OF_VALUES[aggregate.kind](values, aggregate.argument)


def _stddev(values: list[Any], _: int) -> float:
    scale = 2**500 if max(map(abs, values)) > 2**500 else 1
    parts = [Fraction(value) / scale for value in values]
    mean = sum(parts) / len(parts)
    return math.sqrt(sum((part - mean) ** 2 for part in parts) / (len(parts) - 1)) * scale


def _avg(values: list[Any], _: int) -> float:
    total = sum(map(Fraction, values))
    if all(type(value) is int for value in values):
        return float(total / len(values))
    return float(total) / len(values)


_OF_VALUES: dict[str, Callable[[list[Any], int], Any]] = {
    "avg": _avg,
    "stddev": _stddev,
    "min": lambda values, _: min(values),
    "max": lambda values, _: max(values),
    "percentile": lambda values, percent: sorted(values)[-(-percent * len(values) // 100) - 1],
    "first": lambda values, _: values[0],
    "last": lambda values, _: values[-1],
    "lasts": lambda values, length: values[-length:],
}
