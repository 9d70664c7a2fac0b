"""The state of a family of windows for one entity: folding contributions into it, reading values.

A level has tiles of one hop each, of which the newest is open. A contribution to the open tile
leaves the closed ones as the bytes they were read as. A tile depends only on which contributions
it has, not on their order; so does every value of a window.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from headwater.windows import exact, sketches
from headwater.windows.columns import Column, pack, tail, unpack
from headwater.windows.plan import Aggregate, Member, Window, WindowPlan

OTHER = "other"
"""The key of all contributions whose own key is not kept apart."""

_MICROSECONDS = 1_000_000
_BY_TIME = itemgetter(0, 1)
_NUMBERS = (int, float)


class _Level(msgspec.Struct, array_like=True, dict=True):
    floor: int
    """The first tile that is kept."""
    number: int | None
    """The open tile, which is the newest one."""
    row: list[Any]
    """The accumulators of the open tile; if keyed, one dict of keys and their accumulators."""
    closed: msgspec.Raw
    """The columns of the closed tiles: how far they are from the floor, then each accumulator."""

    @cached_property
    def columns(self) -> list[list[Any]]:
        """The closed tiles, to be changed: their numbers, then each accumulator."""
        tiles, *entries = map(unpack, _DECODE_CLOSED(self.closed))
        return [[self.floor + tile for tile in tiles], *entries]

    @property
    def is_changed(self) -> bool:
        """Whether the closed tiles may have been changed since they were decoded."""
        return "columns" in self.__dict__

    def pack(self) -> None:
        """Make the closed tiles bytes again."""
        tiles, *entries = self.columns
        distances = [tile - self.floor for tile in tiles]
        self.closed = msgspec.Raw(_ENCODE([pack(column) for column in (distances, *entries)]))

    def since(self, first: int) -> list[list[Any]]:
        """Return what `columns.tail` gives of each accumulator, from a tile on."""
        if self.is_changed:
            start = bisect_left(self.columns[0], first)
            return [column[start:] for column in self.columns[1:]]
        tiles, *entries = _DECODE_CLOSED(self.closed)
        start = bisect_left(tail(tiles, 0), first - self.floor)
        return [tail(column, start) for column in entries]


class WindowState(msgspec.Struct, array_like=True):
    """What is kept of the contributions of one entity; `fold` changes it."""

    digest: str
    levels: list[_Level]
    lasts: list[list[Any]]
    """The last values after their times and times of writing; none if keyed."""


class _Contribution(NamedTuple):
    value: Any
    number: Any
    """The value as one to add and to compare: an int or a float, or a text."""
    at: int
    written_at: int
    last: int
    """How many of the last values are kept."""


_DECODE_CLOSED = msgspec.json.Decoder(list[Column]).decode
_DECODE = msgspec.json.Decoder(WindowState).decode
_ENCODE = msgspec.json.Encoder().encode


def new_state(plan: WindowPlan, now: int) -> WindowState:
    """Return the state of an entity without contributions."""
    width = 2 if plan.is_keyed else 1 + len(plan.kept)
    closed = msgspec.Raw(_ENCODE([pack([])] * width))
    levels = [_Level(_floor(hop, span, now), None, [], closed) for hop, span in plan.spans]
    return WindowState(plan.digest, levels, [])


def decode_state(plan: WindowPlan, text: bytes | msgspec.Raw) -> WindowState | None:
    """Return a stored state, or None if it is one of another plan."""
    if plan.digest.encode() != memoryview(text)[2:14]:
        return None
    return _DECODE(text)


def encode_state(plan: WindowPlan, state: WindowState) -> bytes:
    """Return the JSON text of a state, which begins with the digest of its plan."""
    for level in state.levels:
        if level.is_changed:
            level.pack()
    return _ENCODE(state)


def covers(plan: WindowPlan, state: WindowState, moment: int) -> bool:
    """Return True if no tile has been dropped that a read at a moment needs.

    One has been if the clock of the reader is behind that of the last fold by more than a hop.
    """
    return all(
        level.floor <= (moment - span) // hop
        for level, (hop, span) in zip(state.levels, plan.spans, strict=True)
    )


def fold(
    plan: WindowPlan,
    state: WindowState,
    value: Any,
    key: str | None,
    at: int,
    written_at: int,
    now: int,
) -> bool:
    """Add a contribution to the tiles of its time; return False if it is too old for all levels."""
    number = value
    if not plan.is_int and type(value) in _NUMBERS:
        number = value + 0.0  # An int becomes a float, and -0.0 becomes 0.0, which it equals.
    contribution = _Contribution(value, number, at, written_at, plan.longest_last)
    is_folded = False
    for level, (hop, span) in zip(state.levels, plan.spans, strict=True):
        tile = at // hop
        if tile < level.floor:
            continue
        is_folded = True
        if tile == level.number:
            level.row = _with(plan, level.row, key, contribution)
            continue
        columns = level.columns
        if level.number is None or tile > level.number:
            if level.number is not None:
                _insert(columns, len(columns[0]), [level.number, *level.row])
            level.number, level.row = tile, _with(plan, None, key, contribution)
        else:
            index = bisect_left(columns[0], tile)
            row = None
            if index < len(columns[0]) and columns[0][index] == tile:
                row = [column.pop(index) for column in columns][1:]
            _insert(columns, index, [tile, *_with(plan, row, key, contribution)])
        # Not below the moment of a late one, so that whatever is late for a level is below its
        # floor: a read that the floor permits lacks nothing.
        level.floor = max(level.floor, _floor(hop, span, min(now, at)))
        outdated = bisect_left(columns[0], level.floor)
        if outdated:
            for column in columns:
                del column[:outdated]
    if is_folded and plan.longest_last and not plan.is_keyed:
        state.lasts = _add_last(state.lasts, contribution)
    return is_folded


def _floor(hop: int, span: int, now: int) -> int:
    """Return the first tile to keep: one more than is read, for readers whose clock is behind."""
    return (now - span) // hop - 1


def _insert(columns: list[list[Any]], index: int, entries: list[Any]) -> None:
    for column, entry in zip(columns, entries, strict=True):
        column.insert(index, entry)


def _with(
    plan: WindowPlan, row: list[Any] | None, key: str | None, contribution: _Contribution
) -> list[Any]:
    """Return the entries of a tile with one more contribution."""
    if not plan.is_keyed:
        entries = row or [None] * len(plan.kept)
        return [
            _ADD[name](entry, contribution) for name, entry in zip(plan.kept, entries, strict=True)
        ]
    keys: dict[str, list[Any]] = row[0] if row else {}
    key = _room(plan, keys, OTHER if key is None else key)
    entries = keys.get(key) or [None] * len(plan.kept)
    keys[key] = [
        _ADD[name](entry, contribution) for name, entry in zip(plan.kept, entries, strict=True)
    ]
    return [keys]


def _room(plan: WindowPlan, keys: dict[str, list[Any]], key: str) -> str:
    """Return the key under which a tile keeps a key: the first ones in order are kept apart.

    A key that is among the first in the end has been among them since its first contribution.
    """
    if key in keys or key == OTHER or len(keys) - (OTHER in keys) < plan.max_keys:
        return key
    last = max(kept for kept in keys if kept != OTHER)
    if key > last:
        return OTHER
    moved = [row for row in (keys.get(OTHER), keys.pop(last)) if row]
    keys[OTHER] = [_JOIN[name](column) for name, *column in zip(plan.kept, *moved, strict=True)]
    if "lasts" in plan.kept:
        index = plan.kept.index("lasts")
        keys[OTHER][index] = keys[OTHER][index][-plan.longest_last :]
    return key


def _add_first(first: list[Any] | None, contribution: _Contribution) -> list[Any]:
    own = [contribution.at, contribution.written_at, contribution.value]
    return own if first is None else min(first, own, key=_BY_TIME)


def _add_last(lasts: list[Any] | None, contribution: _Contribution) -> list[Any]:
    lasts = lasts or []
    insort(lasts, [contribution.at, contribution.written_at, contribution.value], key=_BY_TIME)
    return lasts[-contribution.last :]


def _join_lasts(several: Sequence[list[Any]]) -> list[Any]:
    return sorted(chain.from_iterable(several), key=_BY_TIME)


_ADD: dict[str, Callable[[Any, _Contribution], Any]] = {
    "count": lambda count, _: 1 if count is None else count + 1,
    "sum": lambda total, c: exact.add(total or [], c.number),
    "squares": lambda total, c: exact.add_square(total or [], c.number),
    "int_sum": lambda total, c: (total or 0) + c.number,
    "int_squares": lambda total, c: (total or 0) + c.number**2,
    "min": lambda least, c: c.number if least is None or c.number < least else least,
    "max": lambda most, c: c.number if most is None or c.number > most else most,
    "distinct": lambda seen, c: sketches.add_distinct(seen, c.value),
    "bins": lambda bins, c: sketches.add_to_bins(bins, c.number),
    "first": _add_first,
    "lasts": _add_last,
}
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
    "first": lambda firsts: min(firsts, key=_BY_TIME),
    "lasts": _join_lasts,
}


def evaluate(
    plan: WindowPlan, state: WindowState | None, members: Sequence[Member], moment: int
) -> list[Any]:
    """Return the values of members at a moment; None if one has no value, as an empty maximum.

    The members of a keyed plan are dicts of the keys that have a value.
    """
    parts: dict[str, Any] = {}
    values = []
    for window, aggregate in members:
        part = parts.get(window.name)
        if part is None:
            part = parts[window.name] = _part(plan, state, window, moment)
        value = _VALUE[aggregate.kind]
        if plan.is_keyed:
            keyed = ((key, value(one, aggregate, window)) for key, one in part.items())
            values.append({key: found for key, found in keyed if found is not None})
        else:
            values.append(value(part, aggregate, window))
    return values


_Part = dict[str, Any]
"""The entries of the tiles that a window covers, by their name in `WindowPlan.kept`."""


def _part(
    plan: WindowPlan, state: WindowState | None, window: Window, moment: int
) -> _Part | dict[str, _Part]:
    """Return the part of a state that a window covers at a moment; if keyed, for each key."""
    names = ("keys",) if plan.is_keyed else plan.kept
    if state is None:
        return {} if plan.is_keyed else {name: [] for name in (*names, "lasts")}
    level = state.levels[plan.levels.index(window.hop)]
    first = window.first_tile(moment)
    entries = level.since(first)
    if level.number is not None and level.number >= first:
        for column, entry in zip(entries, level.row, strict=True):
            column.append(entry)
    if plan.is_keyed:
        return _by_key(plan, entries[0])
    part: _Part = dict(zip(names, entries, strict=True))
    start = bisect_left(state.lasts, first * window.hop, key=itemgetter(0))
    part["lasts"] = [state.lasts[start:]]
    return part


def _by_key(plan: WindowPlan, tiles: Sequence[Mapping[str, list[Any]]]) -> dict[str, _Part]:
    """Return the entries of each key; of those after the first ones in order, under ``other``."""
    keys = sorted({key for tile in tiles for key in tile if key != OTHER})
    apart = frozenset(keys[: plan.max_keys])
    rows: dict[str, list[list[Any]]] = {}
    for tile in tiles:
        for key, row in tile.items():
            rows.setdefault(key if key in apart else OTHER, []).append(row)
    return {
        key: {name: column for name, *column in zip(plan.kept, *rows[key], strict=True)}
        for key in (*keys[: plan.max_keys], OTHER)
        if key in rows
    }


def _count(part: _Part, _: Aggregate, __: Window) -> int:
    return sum(part["count"])


def _rate(part: _Part, _: Aggregate, window: Window) -> float:
    return sum(part["count"]) * _MICROSECONDS / window.span


def _sum(part: _Part, _: Aggregate | None = None, __: Window | None = None) -> Any:
    """Return the sum; it is kept in the part for other aggregates of the window."""
    if "total" not in part:
        part["total"] = sum(part["int_sum"]) if "int_sum" in part else exact.rounded(part["sum"])
    return part["total"]


def _avg(part: _Part, _: Aggregate, __: Window) -> float | None:
    count = sum(part["count"])
    return exact.quotient(_sum(part), count) if count else None


def _stddev(part: _Part, _: Aggregate, __: Window) -> float | None:
    """Return the standard deviation of a sample, as of SQL, rounded once before the root."""
    count = sum(part["count"])
    if count < 2:
        return None
    if "int_sum" in part:
        unit, total, squares = 1, sum(part["int_sum"]), sum(part["int_squares"])
    else:
        unit = 1 << exact.UNITS
        total, squares = exact.units(part["sum"]), exact.units(part["squares"])
    deviations = count * squares * unit - total * total
    return exact.root(deviations, count * (count - 1) * unit * unit)


def _percentile(part: _Part, aggregate: Aggregate, _: Window) -> float | None:
    if not part["bins"]:
        return None
    if len(part["bins"]) > 1:
        part["bins"] = [sketches.join_bins(part["bins"])]
    return sketches.percentile(part["bins"][0], aggregate.argument)


def _lasts(part: _Part, aggregate: Aggregate, _: Window) -> list[Any] | None:
    ordered = _join_lasts(part["lasts"])[-aggregate.argument :]
    return [entry[2] for entry in ordered] or None


_VALUE: dict[str, Callable[[_Part, Aggregate, Window], Any]] = {
    "count": _count,
    "rate": _rate,
    "sum": _sum,
    "avg": _avg,
    "stddev": _stddev,
    "min": lambda part, _, __: min(part["min"], default=None),
    "max": lambda part, _, __: max(part["max"], default=None),
    "distinct": lambda part, _, __: sketches.count_distinct(part["distinct"]),
    "percentile": _percentile,
    "first": lambda part, _, __: min(part["first"], key=_BY_TIME)[2] if part["first"] else None,
    "last": lambda part, *rest: (_lasts(part, *rest) or [None])[0],
    "lasts": _lasts,
}


def tile_values(
    plan: WindowPlan, state: WindowState, hop: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the tiles of a level, the oldest first, each with the aggregates of it alone.

    Those that have no value are left out, as are the last values of tiles that no longer have any.
    """
    place, window = plan.levels.index(hop), Window("tile", hop, hop)
    level, members = state.levels[place], [Member(window, each) for each in plan.aggregates]
    nothing = new_state(plan, 0).levels[place].closed
    tiles: list[Sequence[Any]] = list(zip(*level.columns, strict=True))
    if level.number is not None:
        tiles.append([level.number, *level.row])
    for number, *row in tiles:
        only = _Level(number, number, row, nothing)
        lasts = [entry for entry in state.lasts if entry[0] // hop == number]
        alone = WindowState(state.digest, [only] * len(state.levels), lasts)
        values = evaluate(plan, alone, members, (number + 1) * hop)
        named = zip(plan.aggregates, values, strict=True)
        yield number, {each.text: value for each, value in named if value is not None}
