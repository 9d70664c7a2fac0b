"""What a tile keeps of its contributions for each kind of aggregate, by the names of a plan."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any

from headwater.windows import exact, sketches

BY_TIME = itemgetter(0, 1)

Step = Callable[[list[Any], Any, Any, int, int], None]
"""Adds a contribution to the entries of a tile: the value; the number, or text, that it is for
sums and comparisons; its time; the time at which it was written."""

_STEPS = {
    "count": "{0} += 1",
    "sum": "{0} = exact.add({0}, number)",
    "squares": "{0} = exact.add_square({0}, number)",
    "int_sum": "{0} += number",
    "int_squares": "{0} += number * number",
    "min": "if {0} is None or number < {0}: {0} = number",
    "max": "if {0} is None or number > {0}: {0} = number",
    "distinct": "{0} = sketches.add_distinct({0}, number if type(value) is float else value)",
    "bins": "sketches.add_to_bins({0}, number)",
    "first": "if {0} is None or (at, written_at) < ({0}[0], {0}[1]): {0} = [at, written_at, value]",
    "lasts": "add_last({0}, last, at, written_at, value)",
}
_FRESH: dict[str, Callable[[], Any]] = {
    "count": int,
    "int_sum": int,
    "int_squares": int,
    "sum": list,
    "squares": list,
    "bins": list,
    "lasts": list,
}


def fresh(kept: tuple[str, ...]) -> list[Any]:
    """Return the entries of a tile without contributions."""
    return [_FRESH[name]() if name in _FRESH else None for name in kept]


@cache
def step_of(kept: tuple[str, ...], last: int) -> Step:
    """Return the function that adds a contribution, keeping so many of the last values.

    It is made of one line for each entry, because a call for each takes most of the time of a fold.
    """
    lines = [_STEPS[name].format(f"entries[{index}]") for index, name in enumerate(kept)]
    body = "".join(f"    {line}\n" for line in lines or ["pass"])
    names = {"exact": exact, "sketches": sketches, "add_last": add_last, "last": last}
    exec(f"def step(entries, value, number, at, written_at):\n{body}", names)
    made: Step = names["step"]  # type: ignore[assignment]
    return made


def add_last(lasts: list[Any], last: int, at: int, written_at: int, value: Any) -> None:
    """Add a value to the last ones, of which so many are kept."""
    insort(lasts, [at, written_at, value], key=BY_TIME)
    del lasts[:-last]


def join_lasts(several: Sequence[list[Any]]) -> list[Any]:
    """Return the values of several lists in the order of their times."""
    return sorted(chain.from_iterable(several), key=BY_TIME)


_JOIN: dict[str, Callable[[Sequence[Any]], Any]] = {
    "count": sum,
    "sum": exact.join,
    "squares": exact.join,
    "int_sum": sum,
    "int_squares": sum,
    "min": min,
    "max": max,
    "distinct": sketches.join_distinct,
    "bins": sketches.join_bins,
    "first": lambda firsts: min(firsts, key=BY_TIME),
    "lasts": join_lasts,
}


def join(kept: tuple[str, ...], last: int, several: Sequence[list[Any]]) -> list[Any]:
    """Return the entries of several tiles or keys as those of one."""
    joined = [_JOIN[name](column) for name, *column in zip(kept, *several, strict=True)]
    if "lasts" in kept:
        del joined[kept.index("lasts")][:-last]
    return joined
