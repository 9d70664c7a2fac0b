"""Reading windows: the values of a family's features from the state of an entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.core.clock import from_micros, to_micros
from headwater.declarations.features import FeatureDef
from headwater.features.call_scope import Past
from headwater.features.window_states import WindowStates
from headwater.model.features import FeatureRow
from headwater.model.values import Cell, Cells, FeatureValue, WindowRead
from headwater.windows.plan import (
    RELATIVE_ERRORS,
    Aggregate,
    Member,
    Window,
    WindowPlan,
    parse_aggregate,
)
from headwater.windows.state import WindowState, covers, decode_state, evaluate

MISSING = FeatureValue(None, None, "missing")
_MOST_BYTES = 32 << 20


class _Evaluated:
    """The values of the states that were read last, and the tiles that they begin with.

    Their plan is a part of the key, because a state of another plan is not read at all.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[bytes, tuple[str, ...], str], tuple[list[int], dict[str, Any]]] = {}
        self._bytes = 0

    def keep(
        self, key: tuple[bytes, tuple[str, ...], str], tiles: list[int], values: dict[str, Any]
    ) -> None:
        """Keep the values of a state; forget all others if they are too large together."""
        self._bytes += len(key[0])
        if self._bytes > _MOST_BYTES:
            self.values.clear()
            self._bytes = len(key[0])
        self.values[key] = tiles, values


_evaluated = _Evaluated()
_OWN_TYPE = frozenset({"first", "last", "lasts"})
"""The kinds of aggregates whose values are contributions."""


def absent(feature: FeatureDef) -> FeatureValue:
    """Return the default of a feature without a value."""
    if feature.default is None:
        return MISSING
    return FeatureValue(feature.fallback(), None, "default")


class FamilyRead(NamedTuple):
    """The features of one family that a read needs."""

    family: FeatureDef
    plan: WindowPlan
    features: tuple[FeatureDef, ...]
    names: tuple[str, ...]
    members: tuple[Member, ...]
    decoded: tuple[FeatureDef, ...]
    """Those whose values are not plain: their types are decoded."""
    defaulted: tuple[FeatureDef, ...]
    spans: tuple[tuple[int, int], ...]
    """The span and the hop of each window."""
    is_plain: bool
    """Whether all values are numbers or texts."""

    def values(self, state: msgspec.Raw | None, moment: int) -> dict[str, Any] | None:
        """Return the bare values at a moment, None where there is none.

        Return None if the state is of another plan, or has not all tiles of that moment any more.
        At a row of a frame the values themselves are in place of the state, by name.
        """
        if state is None:
            return self._evaluated(None, moment)
        # The text of a state and the tiles that the windows begin with decide about all values.
        text, tiles = bytes(state), [(moment - span) // hop for span, hop in self.spans]
        key = (text, self.names, self.plan.digest)
        known = _evaluated.values.get(key)
        if known is not None and known[0] == tiles:
            return known[1].copy()
        if text.startswith(b"{"):
            found = msgspec.json.decode(text)
            return self._typed({name: found[name] for name in self.names})
        decoded = decode_state(self.plan, state)
        if decoded is None or not covers(self.plan, decoded, moment):
            return None
        values = self._evaluated(decoded, moment)
        if self.is_plain:
            _evaluated.keep(key, tiles, values.copy())
        return values

    def _evaluated(self, state: WindowState | None, moment: int) -> dict[str, Any]:
        found = evaluate(self.plan, state, self.members, moment)
        return self._typed(dict(zip(self.names, found, strict=True)))

    def _typed(self, values: dict[str, Any]) -> dict[str, Any]:
        for feature in self.decoded:
            if values[feature.name] is not None:
                text = msgspec.json.encode(values[feature.name])
                values[feature.name] = feature.codec.decode(text)
        return values

    def row(
        self, cell: Cell | None, moment: int, *, recorded: datetime | None = None, tracked: bool
    ) -> FeatureRow | None:
        """Return the values at a moment with age and source; None as ``values`` does.

        Values that are ``tracked`` have their windows. ``recorded`` is the time of the last fold,
        if the cell was made again and may not know it.
        """
        values = self.values(None if cell is None else cell.value, moment)
        if values is None:
            return None
        at, last_fold = from_micros(moment), recorded
        if last_fold is None and cell is not None:
            last_fold = from_micros(cell.written_at)
        row: FeatureRow = {}
        for feature in self.features:
            value = values[feature.name]
            if value is not None:
                row[feature.name] = FeatureValue(value, at, "online", last_fold)
            elif feature.default is None:
                row[feature.name] = MISSING
            else:  # it is known of this moment that nothing contributed
                row[feature.name] = FeatureValue(feature.fallback(), at, "default", last_fold)
        if tracked:
            for name, (window, aggregate) in zip(self.names, self.members, strict=True):
                of = _window_read(self.family.name, window, aggregate, at, last_fold)
                row[name] = replace(row[name], window=of)
        return row

    def served(
        self, asked: Mapping[str, WindowRead | None], began: datetime
    ) -> dict[Evaluation, FamilyRead]:
        """Return how features were read in the past: recorded ones, and others at the beginning.

        The recorded ones may be of windows that are declared differently now.
        """
        members: dict[Evaluation, dict[str, Member]] = {}
        for feature, member in zip(self.features, self.members, strict=True):
            read, at = asked[feature.name], Evaluation(began, began, None)
            if read is not None:
                at = Evaluation(read.read_at, read.last_fold, read.last_fold)
                window = Window(read.window, read.span_us, read.hop_us)
                member = Member(window, parse_aggregate(read.aggregate))
            members.setdefault(at, {})[feature.name] = member
        return {at: self._of(own) for at, own in members.items()}

    def _of(self, members: Mapping[str, Member]) -> FamilyRead:
        """Return the read of some features, each as a member of its own."""
        features = [feature for feature in self.features if feature.name in members]
        windows = self.family.windows
        assert windows is not None, "only families have windows"
        plan = replace(
            self.plan,
            windows=tuple(dict.fromkeys(member.window for member in members.values())),
            aggregates=tuple(dict.fromkeys(member.aggregate for member in members.values())),
        )
        family = replace(self.family, windows=replace(windows, plan=plan))
        return _family_read(family, features, [*members.values()])


class Evaluation(NamedTuple):
    """The moment of a read, until when contributions count, and the recorded last fold."""

    at: datetime
    known: datetime | None
    last_fold: datetime | None


def _window_read(
    family: str, window: Window, aggregate: Aggregate, at: datetime, last_fold: datetime | None
) -> WindowRead:
    return WindowRead(
        family=family,
        aggregate=aggregate.text,
        window=window.name,
        span_us=window.span,
        hop_us=window.hop,
        relative_error=RELATIVE_ERRORS.get(aggregate.kind),
        read_at=at,
        last_fold=last_fold,
    )


def family_reads(
    features: Iterable[FeatureDef], families: Mapping[str, FeatureDef]
) -> tuple[FamilyRead, ...]:
    """Return how the features of families are read, each family once."""
    grouped: dict[str, list[FeatureDef]] = {}
    for feature in features:
        if feature.window is not None:
            grouped.setdefault(feature.window.family, []).append(feature)
    reads = []
    for name, members in grouped.items():
        family = families[name]
        kinds = [member.window.member for member in members if member.window is not None]
        reads.append(_family_read(family, members, kinds))
    return tuple(reads)


def _family_read(
    family: FeatureDef, features: Sequence[FeatureDef], members: Sequence[Member]
) -> FamilyRead:
    assert family.windows is not None, "a feature of a family names it"
    decoded = [
        feature
        for feature, member in zip(features, members, strict=True)
        if member.aggregate.kind in _OWN_TYPE and feature.codec.kind in ("json", "time")
    ]
    return FamilyRead(
        family,
        family.windows.plan,
        tuple(features),
        tuple([feature.name for feature in features]),
        tuple(members),
        tuple(decoded),
        tuple([feature for feature in features if feature.default is not None]),
        tuple([(window.span, window.hop) for window in family.windows.plan.windows]),
        not decoded and all(feature.codec.kind != "json" for feature in features),
    )


class WindowReader:
    """Reads windows where the online state is not enough: from contributions in history."""

    def __init__(self, states: WindowStates) -> None:
        self._states = states

    async def readable(
        self,
        families: Sequence[FamilyRead],
        ids: Sequence[str],
        cells: Sequence[Cells],
        now: int,
        *,
        known: int | None = None,
    ) -> list[Cells]:
        """Return the cells with states from which windows can be read.

        Those of other plans, and of moments whose tiles were dropped, are made again from history;
        with ``known``, all of them, of the contributions that were written until then.
        """
        readable = [*cells]
        for read in families:
            series = read.family.series
            places = {
                entity_id: place
                for place, (entity_id, held) in enumerate(zip(ids, cells, strict=True))
                if known is not None
                or (series in held and read.values(held[series].value, now) is None)
            }
            if places:
                states = await self._states.made_again(read.family, list(places), now, known)
                for entity_id, place in places.items():
                    state = states[entity_id]
                    others = {k: v for k, v in readable[place].items() if k != series}
                    readable[place] = others if state is None else {**others, series: state}
        return readable

    async def past(self, families: Sequence[FamilyRead], entity_id: str, past: Past) -> FeatureRow:
        """Return the windows that a reader in the past would have got.

        A recorded read is evaluated at its own moment, of the contributions that had been folded.
        """
        row: FeatureRow = {}
        for read in families:
            asked = {f.name: past.window(f, entity_id) for f in read.features}
            for (at, known, last_fold), served in read.served(asked, past.began).items():
                moment, cell = to_micros(at), None
                if known is not None:
                    states = await self._states.made_again(
                        served.family, [entity_id], moment, to_micros(known)
                    )
                    cell = states[entity_id]
                row |= served.row(cell, moment, recorded=last_fold, tracked=True) or {}
        return row
