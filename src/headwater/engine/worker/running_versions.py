"""The versions of features that a worker runs, as the catalog names them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import NamedTuple

from headwater.core.logging import Outage, log
from headwater.core.sql_literals import text, texts
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import is_converting
from headwater.declarations.run_set import RunSet, without_code
from headwater.declarations.series import declared_entry, is_other_kind, shape_of
from headwater.engine.engine import Engine
from headwater.engine.worker.joining import Joiner, drop_unneeded_groups
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    EntityChangedError,
    TypeChangedError,
)
from headwater.history import versions
from headwater.history.backfill.steps import leaves_at, retired_when_due
from headwater.history.versions import missed_nothing, ran
from headwater.model.catalog import CatalogEntry, CatalogState, FeatureVersion
from headwater.model.values import Cell
from headwater.ports import HistoryRow

_LEAVING_PAUSE = 0.1
_SAMPLED = 300


class NewFeatures(NamedTuple):
    """Triggered features that no worker has run, and the time before which events are past."""

    features: Sequence[FeatureDef] = ()
    before: datetime | None = None


class RunningVersions:
    """Enters the features of a worker into the catalog, and follows its changes.

    The versions that the worker runs change only while it runs no batch, by ``apply``.
    """

    def __init__(self, engine: Engine, outage: Outage) -> None:
        self._engine = engine
        self._settled = (-1, -1)
        self._outage = outage
        self._group = engine.settings.worker.consumer_group
        self.run_set = RunSet(())
        """The versions that this worker runs."""
        self.joiner = Joiner(engine)
        self._is_registered = True
        self.new = NewFeatures()
        """The features that this worker is the first one to run."""
        self.noted = asyncio.Event()
        """Set when the catalog was told which versions run."""
        self._noted: frozenset[str] | None = None
        self.is_outdated = False
        """Whether the catalog names other versions than the ones that run."""

    async def prepare(self) -> None:
        """Check and enter the declared features, and run the versions that the catalog names."""
        await check_types(self._engine)
        self.new = await find_new_features(self._engine)
        await self.follow()
        self.apply()
        if any(
            version.backfill is not None and version.state not in ("building", "joining")
            for version in self._engine.catalog.state.versions()
        ):
            await drop_unneeded_groups(self._engine)

    async def follow(self) -> None:
        """Read the catalog if it has changed; if that fails, go on with the one that is known."""
        try:
            state = await self._engine.catalog.follow()
            if self._revisions() == self._settled:
                self._outage.recovered("catalog")
                return
            changed = self._due(state)
            if changed is not state:
                await self._engine.catalog.change(self._due)
            await self._engine.catalog.declare()
        except BackendUnavailableError as error:
            # A new store is confirmed a moment later; events must not wait for that.
            self._outage.report("warning", "catalog not followed; retrying", error, "catalog")
        else:
            self._outage.recovered("catalog")
            # A version may be kept fresh only until readers have heard of the next one.
            if not any(map(leaves_at, self._engine.catalog.state.versions())):
                self._settled = self._revisions()
        self.is_outdated = self._is_outdated()

    async def check(self) -> None:
        """Find out whether other versions have to run, before a claimed partition is run."""
        await self._engine.catalog.follow()
        self.is_outdated = self._is_outdated()

    async def note_current(self, current: Collection[str]) -> None:
        """Record which versions run on which events, before any event is committed by them."""
        causes = frozenset(map(without_code, current))
        if causes == self._noted:
            return
        try:
            await self._engine.catalog.change(
                lambda state: ran(state, self._group, causes, self._engine.clock.now())
            )
        except BackendUnavailableError as error:
            # Events must not wait; until it is recorded, their features count as behind.
            self._outage.report("warning", "catalog not followed; retrying", error, "catalog")
        else:
            self._noted = causes
        self.noted.set()

    def apply(self) -> None:
        """Run the versions that the catalog names."""
        before, self.run_set = self.run_set, self._wanted()
        self.joiner.follow(self.run_set)
        self._is_registered = False
        if other_code := self.other_code:
            log.warning(
                "worker waits: versions were made with other code",
                versions=other_code,
                remedy="restart this worker with the features file that the backfill was run "
                "with; `headwater backfill cancel` gives up a version that is not served",
            )
        if before.triggered:
            log.info("versions changed", before=_series(before), now=_series(self.run_set))

    @property
    def other_code(self) -> list[str]:
        """The versions that workers of other code run, for which this worker has to wait.

        Those that were replaced and leave in a moment are not among them.
        """
        return [version.series for version in self._foreign() if leaves_at(version) is None]

    async def outlast_leaving(self) -> None:
        """Wait until no version of other code is only kept fresh after a switch."""
        while not self.other_code and (
            leaving := list(filter(None, map(leaves_at, self._foreign())))
        ):
            left = max(leaving) - self._engine.clock.now()
            await self._engine.clock.sleep(max(left.total_seconds(), _LEAVING_PAUSE))
            await self.follow()
            self.apply()

    def _foreign(self) -> Sequence[FeatureVersion]:
        """Return the versions of other code because of which this worker runs none."""
        own = self._engine.catalog.served_at_first
        return () if self.run_set.declared else self._engine.registry.foreign(self._group, own)

    def registered(self) -> None:
        """Note that the worker is registered with these versions."""
        self._is_registered = True
        self.is_outdated = False

    def _due(self, state: CatalogState) -> CatalogState:
        """Return the catalog with the features of this worker, and without versions that left."""
        now = self._engine.clock.now()
        features = [
            feature for feature in self._engine.registry.features.values() if feature.is_stored
        ]
        return retired_when_due(versions.run(state, features, now), now)

    def _wanted(self) -> RunSet:
        return self._engine.registry.run_set(self._group, self._engine.catalog.served_at_first)

    def _is_outdated(self) -> bool:
        return self._wanted().declared != self.run_set.declared or not self._is_registered

    def _revisions(self) -> tuple[int, int]:
        return self._engine.catalog.state.revision, self._engine.registry.revision


def _series(run_set: RunSet) -> list[str]:
    return [feature.series for feature in run_set.triggered]


async def check_types(engine: Engine) -> None:
    """Raise TypeChangedError if the values of a feature do not fit the type declared now.

    A type that the values fit, or that they can be converted to, is entered into the catalog.
    Raise EntityChangedError if they belong to another entity. Features for which a backfill makes
    a version of the declared type and entity are left to it.
    """
    state = await engine.catalog.follow()
    for feature in engine.registry.features.values():
        entry = declared_entry(state, feature.name, engine.registry.features)
        if entry is None or entry.active is None:
            continue
        if versions.is_made(entry, feature):
            continue
        if entry.entity_of(entry.active) != feature.entity.name:
            await _change_entity(engine, feature, entry)
        if entry.active.structure == shape_of(feature).structure:
            engine.registry.feature(feature.name).check_stored()
        else:
            await _change_type(engine, feature, entry, entry.active)


async def _change_entity(engine: Engine, feature: FeatureDef, entry: CatalogEntry) -> None:
    """Move a feature without values to the declared entity; raise if it has some."""
    for version in await engine.feature_catalog.versions(entry.feature):
        if version.online or version.history:
            before = entry.entity_of(entry.active)
            raise EntityChangedError(feature.name, before, feature.entity.name, feature.location)
    now = engine.clock.now()
    await engine.catalog.change(
        lambda state: versions.move(state, entry.feature, feature.entity.name, now)
    )


async def _change_type(
    engine: Engine, feature: FeatureDef, entry: CatalogEntry, before: FeatureVersion
) -> None:
    # Some values that a read would return.
    online, entity, series = engine.backends.online, entry.entity_of(before), before.series
    ids = await online.entity_ids(entity, after="", limit=_SAMPLED, having=series)
    rows, micros = await online.get(entity, ids), engine.clock.micros()
    cells: list[Cell | HistoryRow] = [
        row[series] for row in rows if series in row and not row[series].expired(micros)
    ]
    is_other = is_other_kind(entry, feature)
    if feature.windows is not None and not is_other:
        # Online there are states; the contributions have the type.
        cells = [*chain(*await engine.backends.offline.rows(series, ids, limit=1))]
    unfit = [cell for cell in cells if is_other or not feature.codec.fits(cell.value)]
    is_converted = is_converting(feature, before)
    names, name, shape = _names(before, feature), entry.feature, shape_of(feature)
    if not (unfit or is_converted):
        await engine.catalog.change(lambda state: versions.change_type(state, name, shape))
        log.warning(
            "feature has another type",
            **names,
            remedy=f"{len(cells)} stored values were read as the new type; a value that cannot "
            "be read needs convert= or a backfill",
        )
    elif feature.codec.convert is None or is_other:
        raise TypeChangedError(
            feature.name,
            (names["before"], names["now"]),
            bytes((unfit or cells)[0].value).decode() if cells else "",
            feature.location,
            is_triggered=bool(feature.triggers),
            is_convertible=not is_other and feature.windows is None,
        )
    else:
        for cell in cells:
            feature.codec.converted(cell.value)
        now = engine.clock.now()
        await engine.catalog.change(lambda state: versions.convert(state, name, feature, now))
        log.info("feature is converted", **names)


def _names(before: FeatureVersion, feature: FeatureDef) -> dict[str, str]:
    now = shape_of(feature).type
    return {
        "feature": feature.name,
        "before": before.type,
        "now": now if now != before.type else f"{now} with other fields",
    }


async def find_new_features(engine: Engine) -> NewFeatures:
    """Return the triggered features that no worker has run.

    For the first worker of a store nothing is past: all events wait for it.
    """
    state, registry = engine.catalog.state, engine.registry
    entries = {
        name: declared_entry(state, name, registry.features)
        for name, feature in registry.features.items()
        if feature.triggers and feature.codec.kind != "none"
    }
    added = [
        registry.features[name]
        for name, entry in entries.items()
        if entry is None or entry.run_since is None
    ]
    if not added or all(entry.run_since is None for entry in state.features.values()):
        return NewFeatures()
    waiting = [lag.oldest_at for lag in await engine.backends.bus.lag() if lag.oldest_at]
    return NewFeatures(added, min(waiting, default=engine.clock.now()))


async def settle_missed(engine: Engine, noted: asyncio.Event) -> None:
    """Record of versions that began to run later than others that they have missed no event.

    Until that is known, or if there are such events, their values count as behind.
    """
    await noted.wait()
    group, catalog = engine.settings.worker.consumer_group, engine.catalog
    for cause, run in catalog.state.runs.get(group, {}).items():
        if run.missed_since is None or catalog.state.pruned.events is not None:
            continue
        try:
            # Whether there are events that the version may have missed; some may only wait.
            sql = (
                f"SELECT 1 FROM events WHERE event_type = {text(cause.rpartition(' on ')[2])}"
                f" AND received_at < CAST({text(run.since.isoformat())} AS TIMESTAMPTZ) LIMIT 1"
            )
            if not (await engine.backends.offline.query(sql, {})).rows:
                await catalog.change(partial(missed_nothing, group=group, cause=cause, run=run))
        except BackendError as error:
            log.warning("past events not counted", error=str(error))
            return


async def offer_backfills(engine: Engine, new: NewFeatures) -> None:
    """Log the number of past events of each new feature that has some."""
    if not new.features or new.before is None:
        return
    types = {trigger for feature in new.features for trigger in feature.triggers}
    sql = (
        f"SELECT event_type, count(*) FROM events WHERE event_type IN ({texts(sorted(types))})"
        f" AND received_at < CAST({text(new.before.isoformat())} AS TIMESTAMPTZ)"
        " GROUP BY event_type"
    )
    try:
        answer = await engine.backends.offline.query(sql, {})
    except BackendError as error:
        log.warning("past events not counted", error=str(error))
        return
    counts: dict[str, int] = {event_type: count for event_type, count in answer.rows}
    for feature in new.features:
        events = sum(counts.get(trigger, 0) for trigger in feature.triggers)
        if events:
            log.info(
                "feature has past events",
                feature=feature.name,
                events=events,
                remedy=f"{events:,} past events; run `headwater backfill {feature.name}`",
            )
