"""Retention: remove history, events and records that are older than they have to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import asdict, replace

from headwater.core.durations import Duration, to_age
from headwater.errors import InvalidInputError
from headwater.features.followed_catalog import FollowedCatalog
from headwater.history import versions
from headwater.model.admin import PrunedPart, PruneReport
from headwater.model.catalog import CatalogState, FeatureVersion, Horizons
from headwater.ports import Backends
from headwater.settings.groups import RetentionSettings


class Retention(msgspec.Struct, frozen=True):
    """How long history, events and records are kept; None if they are never removed."""

    history: timedelta | None = None
    events: timedelta | None = None
    records: timedelta | None = None

    @classmethod
    def of(cls, ages: Mapping[str, Duration | None]) -> Retention:
        """Return the retention with these ages, each a timedelta or a text such as ``400d``."""
        return cls(**{part: to_age(age) for part, age in ages.items() if age is not None})

    @classmethod
    def configured(cls, settings: RetentionSettings) -> Retention:
        """Return the retention that the settings state."""
        return cls.of(
            {
                "history": settings.history or None,
                "events": settings.events or None,
                "records": settings.records or None,
            }
        )

    def horizons(self, now: datetime) -> Horizons:
        """Return the moments before which nothing has to be kept."""
        ages = asdict(self)
        return Horizons(**{part: now - age for part, age in ages.items() if age is not None})


def month_starts(moments: Horizons) -> Horizons:
    """Return the starts of the months of some moments."""
    return Horizons(
        **{
            part: moment and moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            for part, moment in asdict(moments).items()
        }
    )


async def prune(
    backends: Backends,
    catalog: FollowedCatalog,
    wanted: Horizons,
    *,
    dry_run: bool = False,
) -> PruneReport:
    """Remove what is older than the moments, except what backfills in progress need.

    The moments are stored in the catalog before the first row is removed, so that no read misses
    rows without noticing. An interrupted run is completed by the next one. If all values of history
    are newer, its moment is not stored, so that imported values can be read at their own times; if
    all events are, so that they are all there for a backfill.
    """
    if wanted == Horizons():
        raise InvalidInputError(
            "nothing to prune, because everything is kept; pass how long to keep history, events "
            "or records (history='400d'), or set retention.history, "
            "retention.events or retention.records"
        )
    has_old = wanted.history is not None and await _has_older(
        backends, "feature_history", ("as_of", "written_at"), wanted.history
    )
    removable = wanted if has_old else replace(wanted, history=None)
    if wanted.events is not None and not await _has_older(
        backends, "events", ("received_at",), wanted.events
    ):
        removable = replace(removable, events=None)
    if dry_run:
        state = await catalog.follow()
    else:
        state = await catalog.change(
            lambda state: versions.prune(state, limits(state, removable)[0])
        )
    allowed, held = limits(state, wanted)
    rows = await backends.offline.prune(
        history=allowed.history if has_old else None, events=allowed.events, dry_run=dry_run
    )
    removed = 0
    if allowed.records is not None:
        removed = await backends.records.prune(allowed.records, dry_run=dry_run)
    counts = {"history": rows.history, "events": rows.events, "records": removed}
    parts = {
        part: None if before is None else PrunedPart(before, counts[part])
        for part, before in asdict(allowed).items()
    }
    return PruneReport(**parts, dry_run=dry_run, held=tuple(held))


async def _has_older(
    backends: Backends, table: str, times: Sequence[str], moment: datetime
) -> bool:
    """Return whether a table has a row that is from before a moment by all of its times."""
    is_older = " AND ".join(f"{time} < TIMESTAMPTZ '{moment.isoformat()}'" for time in times)
    answer = await backends.offline.query(
        f"SELECT 1 AS found FROM {table} WHERE {is_older} LIMIT 1", {}
    )
    return bool(answer.rows)


def limits(state: CatalogState, wanted: Horizons) -> tuple[Horizons, list[str]]:
    """Return the moments up to which can be pruned, and why some are earlier than wanted."""
    held: list[str] = []
    for feature, version in _building(state):
        since = None if version.backfill is None else version.backfill.since
        kept = "all of history" if since is None else f"history since {since.isoformat()}"
        wanted = replace(wanted, events=None, history=_earlier(wanted.history, since))
        held.append(f"the backfill of {feature!r} is in progress and needs all events and {kept}")
    return wanted, held


def _building(state: CatalogState) -> Iterator[tuple[str, FeatureVersion]]:
    for entry in state.features.values():
        for version in entry.versions:
            if version.state == "building":
                yield entry.feature, version


def _earlier(moment: datetime | None, limit: datetime | None) -> datetime | None:
    return None if moment is None or limit is None else min(moment, limit)
