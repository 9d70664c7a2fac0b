"""A window of one entity over time: its value at each contribution, and where it falls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from headwater.core.clock import MICROSECOND, from_micros, to_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.windows import WindowMember
from headwater.errors import InvalidInputError
from headwater.ports import HistoryRow, OfflineStore
from headwater.windows.replay import Contribution, values_at

MOST_CONTRIBUTIONS = 100_000
PASSED = "passed"
"""The cause of a value that changed because contributions left its window."""

_EVER = from_micros(0)


class CurvePage(NamedTuple):
    """Values, the newest first, and the ``end`` of the next page; None for the last."""

    rows: Sequence[HistoryRow]
    next_end: datetime | None


async def curve_page(
    offline: OfflineStore,
    feature: FeatureDef,
    entity_id: str,
    start: datetime | None,
    end: datetime,
    limit: int,
    earliest: datetime | None,
) -> CurvePage:
    """Return the values at the changes with ``start <= as_of < end``, as they were true.

    There are none of moments whose window begins before ``earliest``, up to which history was
    pruned. Raise InvalidInputError if the windows of a page have too many contributions.
    """
    member = feature.window
    assert member is not None, "only features of families have a curve"
    reach = (member.window.span + member.window.hop) * MICROSECOND
    first = max(_EVER if start is None else start, _EVER if earliest is None else earliest + reach)
    (newest,) = await offline.rows(
        feature.series, [entity_id], start=first, end=end, limit=limit + 1
    )
    has_more = len(newest) > limit
    if has_more:
        first = newest[-1].as_of
    since = max(first, _EVER + reach) - reach
    (rows,) = await offline.rows(
        feature.series, [entity_id], start=since, end=end, limit=MOST_CONTRIBUTIONS + 1
    )
    if len(rows) > MOST_CONTRIBUTIONS:
        raise InvalidInputError(
            f"the windows of {feature.name!r} from {since.isoformat()} on have more than "
            f"{MOST_CONTRIBUTIONS} contributions of {entity_id!r}; give a smaller limit, or read "
            "some moments with get_historical_features"
        )
    page = _curve(member, rows, to_micros(first), to_micros(end))
    if len(page) > limit:
        return CurvePage(page[:limit], page[limit - 1].as_of)
    # Several contributions of one moment, and those that where= leaves out, make a page shorter.
    return CurvePage(page, first if has_more else None)


def _curve(
    member: WindowMember, rows: Sequence[HistoryRow], first: int, end: int
) -> list[HistoryRow]:
    """Return the values at the changes from a moment until before another, the newest first."""
    window, contributions = member.window, list[Contribution]()
    causes: dict[int, HistoryRow | None] = {}
    for row in reversed(rows):
        taken = member.of.taken(msgspec.json.decode(row.value))
        if taken is not None:
            at = to_micros(row.as_of)
            contributions.append(Contribution(at, at, to_micros(row.written_at), *taken))
            # The moment at which the window begins after the hop of the contribution.
            causes.setdefault((at // window.hop + 1) * window.hop + window.span)
            causes[at] = row
    moments = [moment for moment in sorted(causes) if moment < end]
    curve: list[HistoryRow] = []
    text, last = b"", None
    plan = member.of.plan.of_members([member.member])
    values = values_at(plan, [member.member], contributions, moments)
    for moment, (value,) in zip(moments, values, strict=True):
        before, text = text, msgspec.json.encode(value)
        cause = causes[moment]
        last = cause or last
        if moment < first or last is None or (cause is None and text == before):
            continue
        curve.append(
            HistoryRow(text, from_micros(moment), last.written_at, cause.cause if cause else PASSED)
        )
    return curve[::-1]
