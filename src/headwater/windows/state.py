"""The state of a family of windows for one entity: folding contributions into it, reading values.

A level has tiles of one hop each. A contribution to the newest tile leaves the older ones as the
bytes they were read as. A tile depends only on which contributions it has, not on their
order; so does every value of a window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import msgspec

from headwater.windows import exact, sketches
from headwater.windows.accumulators import BY_TIME, add_last, fresh, join, join_lasts, step_of
from headwater.windows.columns import Column, pack, tail, unpack
from headwater.windows.plan import Aggregate, Member, Window, WindowPlan

OTHER = "other"
"""The key of all contributions whose own key is not kept apart."""

_MICROSECONDS = 1_000_000
_NUMBER = itemgetter(0)
_NUMBERS = (int, float)
_MOST_RECENT = 512
"""Bytes of tiles that are stored as they are: to pack them takes longer than a fold."""


class _Level(msgspec.Struct, array_like=True, dict=True):
    """The tiles of one hop. A row is the number of a tile and its entries; if keyed, by key."""

    floor: int
    """The first tile that is kept."""
    number: int | None
    """The newest tile, which is open; all others are older."""
    open: list[Any]
    """The entries of the open tile."""
    recent: msgspec.Raw
    """The rows of the newest of the older tiles."""
    packed: msgspec.Raw
    """The columns of the other older tiles: how far they are from the floor, then each entry.

    It is ``_UNPACKED`` while ``older`` has them, and may have changed them."""

    @cached_property
    def older(self) -> list[list[Any]]:
        """The rows of the older tiles, which may be changed until they are packed."""
        columns = map(unpack, _DECODE_PACKED(self.packed))
        rows = [[self.floor + tile, entries] for tile, *entries in zip(*columns, strict=True)]
        rows += _DECODE_ROWS(self.recent)
        self.packed = _UNPACKED
        return rows

    def pack(self) -> None:
        """Make the older tiles bytes again."""
        columns = zip(*[(tile - self.floor, *entries) for tile, entries in self.older], strict=True)
        self.packed = msgspec.Raw(_ENCODE([pack(column) for column in columns]))
        self.recent = _NOTHING
        del self.older

    def entries(self, tile: int, floor: int) -> list[Any] | None:
        """Return the entries of a tile, to be changed, or None if it is below the floor.

        The floor rises to the one that is given whenever older tiles are decoded.
        """
        if tile < self.floor:
            return None
        if self.number is None or tile > self.number:
            self._close()
            self.number, self.open = tile, []
            entries = self.open
        else:
            index = bisect_left(self.older, tile, key=_NUMBER)
            if index == len(self.older) or self.older[index][0] != tile:
                self.older.insert(index, [tile, []])
            entries = self.older[index][1]
        if self.packed is _UNPACKED:
            self.floor = max(self.floor, floor)
            del self.older[: bisect_left(self.older, self.floor, key=_NUMBER)]
        return entries

    def _close(self) -> None:
        """Put the open tile to the older ones."""
        if self.number is None:
            return
        row, recent = [self.number, self.open], bytes(self.recent)
        if self.packed is _UNPACKED or len(recent) > _MOST_RECENT:
            self.older.append(row)
        else:
            separator = b"," if len(recent) > len(b"[]") else b""
            self.recent = msgspec.Raw(recent[:-1] + separator + _ENCODE(row) + b"]")

    def since(self, first: int, width: int) -> list[list[Any]]:
        """Return a column of each entry, from a tile on, as `tail` does."""
        columns: list[list[Any]] = [[] for _ in range(width)]
        if self.packed is _UNPACKED:
            rows = self.older
        else:
            rows = _DECODE_ROWS(self.recent)
            if packed := _DECODE_PACKED(self.packed):
                start = bisect_left(tail(packed[0], 0), first - self.floor)
                columns = [tail(column, start) for column in packed[1:]]
        newer = [entries for tile, entries in rows if tile >= first]
        if self.number is not None and self.number >= first:
            newer.append(self.open)
        for column, more in zip(columns, zip(*newer, strict=True), strict=False):
            column.extend(more)
        return columns

    def rows(self) -> list[list[Any]]:
        """Return the rows of all tiles, in order."""
        return self.older if self.number is None else [*self.older, [self.number, self.open]]


class WindowState(msgspec.Struct, array_like=True):
    """What is kept of the contributions of one entity; `fold` changes it."""

    digest: str
    levels: list[_Level]
    lasts: list[list[Any]]
    """The last values after their times and times of writing; none if keyed."""


_NOTHING = msgspec.Raw(b"[]")
_UNPACKED = msgspec.Raw()
_DECODE_PACKED = msgspec.json.Decoder(list[Column]).decode
_DECODE_ROWS = msgspec.json.Decoder(list[list[Any]]).decode
_DECODE = msgspec.json.Decoder(WindowState).decode
_ENCODE = msgspec.json.Encoder().encode


def new_state(plan: WindowPlan, now: int) -> WindowState:
    """Return the state of an entity without contributions."""
    levels = [
        _Level(_floor(hop, span, now), None, [], _NOTHING, _NOTHING) for hop, span in plan.spans
    ]
    return WindowState(plan.digest, levels, [])


def decode_state(plan: WindowPlan, text: bytes | msgspec.Raw) -> WindowState | None:
    """Return a stored state, or None if it is one of another plan."""
    if not bytes(text).startswith(plan.opening):
        return None
    return _DECODE(text)


def encode_state(plan: WindowPlan, state: WindowState) -> bytes:
    """Return the JSON text of a state, which begins with the digest of its plan."""
    for level in state.levels:
        if level.packed is _UNPACKED:
            level.pack()
    return _ENCODE(state)


def covers(plan: WindowPlan, state: WindowState, moment: int) -> bool:
    """Return True if no tile has been dropped that a read at a moment needs.

    One has been if the clock of the reader is behind that of the last fold by more than a hop.
    """
    for level, (hop, span) in zip(state.levels, plan.spans, strict=True):
        if level.floor * hop > moment - span:
            return False
    return True


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
    step = step_of(plan.kept, plan.longest_last)
    is_folded = False
    for level, (hop, span) in zip(state.levels, plan.spans, strict=True):
        tile = at // hop
        entries: list[Any] | None = level.open
        if tile != level.number:
            # The floor is not above that of a late one, so that whatever a level refuses is below
            # its own: a read that this one permits lacks nothing.
            entries = level.entries(tile, _floor(hop, span, min(now, at)))
        if entries is not None:
            is_folded = True
            own = _of_key(plan, entries, key) if plan.is_keyed else entries
            step(own or _start(plan, own), value, number, at, written_at)
    if is_folded and plan.longest_last and not plan.is_keyed:
        add_last(state.lasts, plan.longest_last, at, written_at, value)
    return is_folded


def _floor(hop: int, span: int, now: int) -> int:
    """Return the first tile to keep: one more than is read, for readers whose clock is behind."""
    return (now - span) // hop - 1


def _start(plan: WindowPlan, entries: list[Any]) -> list[Any]:
    """Make an empty list the entries of no contribution."""
    entries += fresh(plan.kept)
    return entries


def _of_key(plan: WindowPlan, entries: list[Any], key: str | None) -> list[Any]:
    """Return the entries of a key in a tile, which keeps the first ones in order apart.

    A key that is among the first in the end has been among them since its first contribution.
    """
    if not entries:
        entries.append({})
    keys: dict[str, list[Any]] = entries[0]
    if key is None or not _has_room(plan, keys, key):
        key = OTHER
    return keys.setdefault(key, [])


def _has_room(plan: WindowPlan, keys: dict[str, list[Any]], key: str) -> bool:
    if key in keys or key == OTHER or len(keys) - (OTHER in keys) < plan.max_keys:
        return True
    last = max(kept for kept in keys if kept != OTHER)
    if key < last:
        moved = [row for row in (keys.get(OTHER), keys.pop(last)) if row]
        keys[OTHER] = join(plan.kept, plan.longest_last, moved)
    return key < last


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
    entries = level.since(first, len(names))
    if plan.is_keyed:
        return _by_key(plan, entries[0])
    part: _Part = dict(zip(names, entries, strict=True))
    start = bisect_left(state.lasts, first * window.hop, key=_NUMBER)
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
    if not count:
        return None
    total = _sum(part)
    # The sum may be beyond all floats, and the mean not.
    if "sum" in part and abs(total) == exact.LARGEST:
        return exact.quotient(exact.units(part["sum"]), count << exact.UNITS)
    return exact.quotient(total, count)


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
    ordered = join_lasts(part["lasts"])[-aggregate.argument :]
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
    "first": lambda part, _, __: min(part["first"], key=BY_TIME)[2] if part["first"] else None,
    "last": lambda part, *rest: (_lasts(part, *rest) or [None])[0],
    "lasts": _lasts,
}


def tile_values(
    plan: WindowPlan, state: WindowState, hop: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the tiles of a level, the oldest first, each with the aggregates of it alone.

    Tiles without a value are left out, as are the last values of tiles that no longer have any.
    """
    place, window = plan.levels.index(hop), Window("tile", hop, hop)
    level, members = state.levels[place], [Member(window, each) for each in plan.aggregates]
    for number, entries in level.rows():
        only = _Level(number, number, entries, _NOTHING, _NOTHING)
        lasts = [entry for entry in state.lasts if entry[0] // hop == number]
        alone = WindowState(state.digest, [only] * len(state.levels), lasts)
        values = evaluate(plan, alone, members, (number + 1) * hop)
        named = zip(plan.aggregates, values, strict=True)
        yield number, {each.text: value for each, value in named if value is not None}
