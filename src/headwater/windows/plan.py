"""What a family of windows declares: its spans, its aggregates, and what must be kept for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.core.durations import to_timedelta
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest

_MICROSECONDS = 1_000_000
_HOPS = tuple(seconds * _MICROSECONDS for seconds in (60, 300, 900, 3_600, 21_600, 86_400))
_HOPS_IN_A_WINDOW = 24
_MOST_HOPS = 10_000
_LONGEST = 36_500 * 86_400 * _MICROSECONDS
_LONGEST_LAST = 1_000
_CALL = re.compile(r"last\((\d{1,4})\)", re.ASCII)
_PERCENTILE = re.compile(r"p(\d{1,2})", re.ASCII)
_PLAIN = frozenset(
    {"count", "sum", "avg", "min", "max", "stddev", "distinct", "first", "last", "rate"}
)
NUMERIC = frozenset({"sum", "avg", "stddev", "percentile"})
"""The kinds of aggregates that need numbers."""
ZERO = frozenset({"count", "sum", "distinct", "rate"})
"""The kinds of aggregates that are 0 where nothing contributed; the others have no value then."""
RELATIVE_ERRORS = {"distinct": "0.046", "percentile": "0.01"}
"""The errors of the kinds that are computed of sketches, as part of the value; `distinct` is exact
until a tile has more than 128 different values."""
ORDERED = frozenset({"min", "max"})
"""The kinds of aggregates that need numbers or texts."""


class Window(msgspec.Struct, frozen=True):
    """A span of time that moves in hops; both in microseconds.

    At a moment it covers the contributions since the beginning of the hop in which it begins:
    never less than its span, and less than one hop more.
    """

    name: str
    span: int
    hop: int

    def first_tile(self, moment: int) -> int:
        """Return the number of the first hop that it covers at a moment."""
        return (moment - self.span) // self.hop


class Aggregate(msgspec.Struct, frozen=True):
    """What is computed of a window: ``sum``, ``last(10)`` or ``p95``."""

    text: str
    kind: str
    argument: int = 0

    @property
    def name(self) -> str:
        """Its part of the name of a feature, such as ``last10``."""
        return self.text.replace("(", "").replace(")", "")


class Member(NamedTuple):
    """One aggregate of one window."""

    window: Window
    aggregate: Aggregate


class WindowPlan(msgspec.Struct, frozen=True, dict=True):
    """The windows and aggregates of a family, and how contributions are divided by keys."""

    windows: tuple[Window, ...]
    aggregates: tuple[Aggregate, ...]
    is_int: bool = False
    """Whether all values are whole numbers, so that sums of them are."""
    is_keyed: bool = False
    max_keys: int = 0
    """How many keys a tile keeps apart; those after them in order are one, called ``other``."""
    selection: str = ""
    """What decides which part of a contribution counts: it changes the state, not the history."""

    @cached_property
    def digest(self) -> str:
        """Names the form and the meaning of a state; a state of another plan is made again."""
        parts = (
            [(window.span, window.hop) for window in self.windows],
            sorted(aggregate.text for aggregate in self.aggregates),
            (self.is_int, self.is_keyed, self.max_keys, self.selection),
        )
        return sha256(repr((_FORM, parts)).encode()).hexdigest()[:12]

    @cached_property
    def opening(self) -> bytes:
        """What the JSON text of a state begins with."""
        return f'["{self.digest}"'.encode()

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The hop of each level, and the longest span of its windows."""
        return tuple(
            (hop, max(window.span for window in self.windows if window.hop == hop))
            for hop in self.levels
        )

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """What a tile keeps for its aggregates, by the names of `windows.accumulators`."""
        names = {name for kind in self.kinds for name in _KEPT[kind]}
        if self.is_int:
            names = {_OF_INTS.get(name, name) for name in names}
        # Without keys, the last values of all tiles are in one list.
        return tuple(sorted(names if self.is_keyed else names - {"lasts"}))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The different hops of its windows, in ascending order: each has tiles of its own."""
        return tuple(sorted({window.hop for window in self.windows}))

    @cached_property
    def reach(self) -> int:
        """How long before a moment the oldest contribution can be that a state of it has.

        That is one hop more than counts, for readers whose clocks are behind.
        """
        return max(window.span + 2 * window.hop for window in self.windows)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its aggregates."""
        return frozenset(aggregate.kind for aggregate in self.aggregates)

    @cached_property
    def longest_last(self) -> int:
        """How many of the last values its aggregates need."""
        lengths = [a.argument for a in self.aggregates if a.kind in ("last", "lasts")]
        return max(lengths, default=0)

    def of_members(self, members: Sequence[Member]) -> WindowPlan:
        """Return the plan that keeps no more than some members need: they have the same values."""
        windows, aggregates = (tuple(dict.fromkeys(part)) for part in zip(*members, strict=True))
        return msgspec.structs.replace(self, windows=windows, aggregates=aggregates)

    def floor(self, hop: int, moment: int) -> int:
        """Return the first tile of a level that any of its windows needs at a moment."""
        return min(w.first_tile(moment) for w in self.windows if w.hop == hop)


_KEPT = {
    "count": ("count",),
    "rate": ("count",),
    "sum": ("sum",),
    "avg": ("count", "sum"),
    "stddev": ("count", "sum", "squares"),
    "min": ("min",),
    "max": ("max",),
    "distinct": ("distinct",),
    "percentile": ("bins",),
    "first": ("first",),
    "last": ("lasts",),
    "lasts": ("lasts",),
}
_OF_INTS = {"sum": "int_sum", "squares": "int_squares"}
_FORM = 2
"""The version of the form in which states are stored."""


def parse_aggregate(text: object) -> Aggregate:
    """Return an aggregate; raise InvalidInputError if there is none of that name.

    >>> parse_aggregate("last(10)").name
    'last10'
    """
    if isinstance(text, str):
        if text in _PLAIN:
            return Aggregate(text, text, 1 if text == "last" else 0)
        if (match := _PERCENTILE.fullmatch(text)) and int(match[1]) > 0:
            return Aggregate(f"p{int(match[1])}", "percentile", int(match[1]))
        if (match := _CALL.fullmatch(text)) and 0 < int(match[1]) <= _LONGEST_LAST:
            return Aggregate(f"last({int(match[1])})", "lasts", int(match[1]))
    choices = (*_PLAIN, "p50", "p95", "p99", "last(10)")
    raise InvalidInputError(f"unknown aggregate {text!r}; {nearest(str(text), choices)}")


def parse_window(duration: Any, hop: Any = None) -> Window:
    """Return a window and its hop; raise InvalidInputError if they do not fit each other.

    >>> parse_window("7d").hop // 3_600_000_000
    6
    """
    span = _micros(duration)
    name = duration.replace(" ", "") if isinstance(duration, str) else _name(span)
    if not name.isalnum():
        name = _name(span)
    if span > _LONGEST:
        raise InvalidInputError(f"the window {duration!r} is longer than 100 years; shorten it")
    step = _default_hop(span) if hop is None else _micros(hop)
    if step > span:
        raise InvalidInputError(f"the hop {hop!r} is longer than the window {duration!r}")
    if span // step > _MOST_HOPS:
        raise InvalidInputError(
            f"the window {duration!r} has {span // step} hops of {hop or _name(step)}, more than "
            f"the maximum of {_MOST_HOPS}; choose a longer hop= or a shorter window"
        )
    return Window(name, span, step)


def _micros(duration: Any) -> int:
    return round(to_timedelta(duration).total_seconds() * _MICROSECONDS)


def _default_hop(span: int) -> int:
    """Return the longest usual hop of which a window has 24; of shorter windows a part of them."""
    fitting = [hop for hop in _HOPS if hop * _HOPS_IN_A_WINDOW <= span]
    return fitting[-1] if fitting else max(1, span // _HOPS_IN_A_WINDOW)


def _name(span: int) -> str:
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if span % (seconds * _MICROSECONDS) == 0:
            return f"{span // (seconds * _MICROSECONDS)}{unit}"
    return f"{span}us" if span % 1_000 else f"{span // 1_000}ms"


def check_unique(names: Sequence[str], what: str) -> None:
    """Raise InvalidInputError if one of the windows or aggregates is declared twice."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(f"{what} {name!r} is declared twice; remove one of them")
