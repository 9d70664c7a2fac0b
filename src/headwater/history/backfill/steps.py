"""The steps of a backfill as changes of the catalog; every one can be repeated. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from headwater.core.clock import MICROSECOND
from headwater.declarations.series import declared_entry
from headwater.errors import BackfillRefusedError, InvalidInputError
from headwater.history.versions import (
    ChangeVersion,
    meant,
    unfinished,
    version_numbered,
    with_entry,
)
from headwater.model.catalog import CatalogState, FeatureVersion, Horizons

KEPT_FRESH = timedelta(seconds=10)
"""How long the version served before a switch is kept fresh, for readers with an older catalog."""


def check_kept(
    feature: str, pruned: Horizons, since: datetime | None, tolerance: timedelta
) -> None:
    """Raise BackfillRefusedError if a replay since a time needs events or values that are pruned.

    Events are pruned by when they were received, and may be of a time that is later by the
    tolerance. A replay with ``since`` begins with the values of just before it.
    """
    from_events = None if pruned.events is None else pruned.events + tolerance
    from_history = None if pruned.history is None else pruned.history + MICROSECOND
    earliest = max(filter(None, (from_events, from_history)), default=None)
    if earliest is None or (from_events is None if since is None else since >= earliest):
        return
    lacking = [
        f"{part} before {horizon.isoformat()}"
        for part, horizon in (("events", pruned.events), ("history", pruned.history))
        if horizon is not None
    ]
    asked = "from the beginning" if since is None else f"since {since.isoformat()}"
    raise BackfillRefusedError(
        feature,
        f"{asked} it would lack what was pruned ({', '.join(lacking)}), and give other values; "
        f"run it with --since {earliest.isoformat()} or later, which keeps the values of before",
    )


def started(start: Mapping[int, str]) -> ChangeVersion:
    """Return the change that stores up to where stored events are replayed."""

    def change(version: FeatureVersion) -> FeatureVersion:
        if version.backfill is None or version.backfill.start:
            return version
        return replace(version, backfill=replace(version.backfill, start=start))

    return change


def joining(version: FeatureVersion) -> FeatureVersion:
    """Let workers begin to run a version."""
    return replace(version, state="joining") if version.state == "building" else version


def joined(partition: int, position: str, partitions: int) -> ChangeVersion:
    """Return the change that marks a partition; the last one makes the version ready."""

    def change(version: FeatureVersion) -> FeatureVersion:
        backfill = version.backfill
        if version.state != "joining" or backfill is None or partition in backfill.joined:
            return version
        marks = {**backfill.joined, partition: position}
        state = "ready" if len(marks) == partitions else "joining"
        return replace(version, state=state, backfill=replace(backfill, joined=marks))

    return change


def cancelled(now: datetime) -> ChangeVersion:
    """Return the change that gives a version up; its number and series are not used again."""

    def change(version: FeatureVersion) -> FeatureVersion:
        if version.state in ("active", "retired"):
            return version
        return replace(version, state="retired", retired_at=now)

    return change


def switched(
    state: CatalogState, feature: str, declared: Collection[str], number: int | None, now: datetime
) -> CatalogState:
    """Return the catalog in which another version is served: the given one, or the backfill's.

    The version that was served until now is kept fresh for a while.
    """
    entry = declared_entry(state, feature, declared)
    target = version_numbered(entry, number) if entry and number is not None else unfinished(entry)
    if entry is None or target is None:
        raise InvalidInputError(no_backfill(feature))
    if target.state != "ready":
        raise InvalidInputError(_not_ready(feature, target))

    def change(version: FeatureVersion) -> FeatureVersion:
        if version.number == target.number:
            return replace(version, state="active", activated_at=now, retired_at=None)
        return (
            replace(version, state="ready", retired_at=now)
            if version.state == "active"
            else version
        )

    return with_entry(state, meant(replace(entry, versions=[*map(change, entry.versions)]), now))


def no_backfill(feature: str) -> str:
    """Return the message for a feature without an unfinished backfill."""
    return (
        f"feature {feature!r} has no backfill that is not served; start one with `headwater "
        f"backfill {feature}`"
    )


def _not_ready(feature: str, version: FeatureVersion) -> str:
    subject = f"version {version.number} of feature {feature!r}"
    if version.state == "active":
        return f"{subject} is served already; `headwater features versions {feature}` lists all"
    if version.state == "retired":
        return (
            f"{subject} is not kept fresh any more, so that events are missing in its values; run "
            f"`headwater backfill {feature}` to compute a new version with the present function"
        )
    return (
        f"{subject} is not ready to be served: it is {version.state}; wait until `headwater "
        f"backfill status {feature}` says that it is ready, or run `headwater backfill {feature}` "
        "to continue if that was interrupted"
    )


def retired_when_due(state: CatalogState, now: datetime) -> CatalogState:
    """Return the catalog without the versions that had to be kept fresh for a while, and were."""
    for entry in state.features.values():
        versions = [
            replace(version, state="retired") if _is_due(version, now) else version
            for version in entry.versions
        ]
        if versions != list(entry.versions):
            state = with_entry(state, replace(entry, versions=versions))
    return state


def leaves_at(version: FeatureVersion) -> datetime | None:
    """Return until when a version is kept fresh for readers that do not know of the next one."""
    if version.state != "ready" or version.retired_at is None:
        return None
    return version.retired_at + KEPT_FRESH


def _is_due(version: FeatureVersion, now: datetime) -> bool:
    moment = leaves_at(version)
    return moment is not None and now >= moment
