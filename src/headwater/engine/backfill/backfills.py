"""The backfills of a store: begin one, find it, show how far it is, give it up."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import rmtree

from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.series import declared_entry
from headwater.engine.engine import Engine
from headwater.engine.worker.joining import GROUP_PREFIX
from headwater.errors import (
    BackfillRefusedError,
    GroupInUseError,
    InvalidInputError,
    UnknownGroupError,
)
from headwater.history import versions
from headwater.history.backfill.erasing import is_installed
from headwater.history.backfill.replay import (
    check_replayable,
    replay_failures,
    replay_progress,
)
from headwater.history.backfill.steps import cancelled, check_kept, no_backfill
from headwater.history.backfill.task import ReplayJob, StoreSource
from headwater.model.admin import ConsumerGroup
from headwater.model.backfills import BackfillStatus
from headwater.model.catalog import BackfillState, CatalogState, FeatureVersion
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import new_id

_PAUSE = 0.05
_SHOWN_FAILURES = 100


async def backfill_status(engine: Engine, feature: str, source: StoreSource) -> BackfillStatus:
    """Return how far the unfinished backfill of a feature is."""
    version = await unfinished_backfill(engine, feature)
    backfill = backfill_of(version)
    job = replay_job(engine, engine.registry.feature(feature), version, source)
    group = await group_named(engine, backfill.group)
    return BackfillStatus(
        feature=feature,
        version=version.number,
        state=version.state,
        created_at=version.created_at,
        since=backfill.since,
        replayed=replay_progress(job),
        waiting=group.waiting if group else 0,
        joined=len(backfill.joined),
        partitions=engine.backends.bus.partitions,
        failures=await shown_failures(engine, job),
    )


async def shown_failures(engine: Engine, job: ReplayJob) -> list[DeadLetter]:
    """Return the first events that failed in a replay, except those of erased entities."""
    ledger, subjects = await engine.backends.erasures.refresh(), engine.registry.subjects
    failures = (
        failure for failure in replay_failures(job) if not ledger.voiding(failure.event, subjects)
    )
    return await asyncio.to_thread(lambda: list(islice(failures, _SHOWN_FAILURES)))


def replay_job(
    engine: Engine, feature: FeatureDef, version: FeatureVersion, source: StoreSource
) -> ReplayJob:
    """Return the replay of the events that a backfill has exported."""
    backfill = backfill_of(version)
    folder = backfill_folder(engine, backfill)
    return ReplayJob(
        source=source,
        feature=feature.name,
        series=version.series,
        definition=version.definition,
        folder=folder / "replay",
        files=exported_files(folder),
        order=feature.order,
        since=backfill.since,
    )


def backfill_of(version: FeatureVersion) -> BackfillState:
    """Return the backfill that makes a version."""
    assert version.backfill is not None
    return version.backfill


async def begin_backfill(
    engine: Engine, feature: FeatureDef, since: datetime | None
) -> FeatureVersion:
    """Return the version that the feature's unfinished backfill makes, or begin a backfill."""
    check_replayable(feature)
    state = await engine.backends.catalog.load()
    version = _unfinished(engine, state, feature.name)
    if version is not None and await _is_lost(engine, feature, version):
        await cancel_backfill(engine, feature.name, version)
        version = None
    if version is None:
        state = await engine.catalog.change(partial(_begun, engine, feature, since))
        version = _unfinished(engine, state, feature.name)
        assert version is not None
    if version.definition not in ("", definition_of(feature)):
        raise BackfillRefusedError(
            feature.name,
            f"a backfill of it with other code is in progress (version {version.number}); continue "
            f"it with that features file, or run `headwater backfill cancel {feature.name}` first",
        )
    backfill = backfill_of(version)
    if since is not None and backfill.since != since:
        earlier = "all events" if backfill.since is None else f"events since {backfill.since}"
        raise BackfillRefusedError(
            feature.name,
            f"a backfill of it from {earlier} is in progress; continue it without --since, or run "
            f"`headwater backfill cancel {feature.name}` first",
        )
    backfill_folder(engine, backfill).mkdir(parents=True, exist_ok=True)
    return version


def _unfinished(engine: Engine, state: CatalogState, feature: str) -> FeatureVersion | None:
    return versions.unfinished(declared_entry(state, feature, engine.registry.features))


def _begun(
    engine: Engine, feature: FeatureDef, since: datetime | None, state: CatalogState
) -> CatalogState:
    if _unfinished(engine, state, feature.name) is not None:
        return state  # another run has just begun
    # With the change that makes pruning keep what this backfill needs.
    check_kept(feature.name, state.pruned, since, engine.settings.ingest.future_tolerance)
    backfill_id = new_id()
    group = f"{GROUP_PREFIX}{backfill_id}"
    main_group = engine.settings.worker.consumer_group
    backfill = BackfillState(id=backfill_id, since=since, group=group, main_group=main_group)
    return versions.add_version(
        state, feature, engine.registry.features, engine.clock.now(), backfill
    )


async def _is_lost(engine: Engine, feature: FeatureDef, version: FeatureVersion) -> bool:
    """Return whether the results of an unfinished replay are in no folder that exists here."""
    backfill = backfill_of(version)
    if version.state != "building" or backfill_folder(engine, backfill).exists():
        return False
    group = await group_named(engine, backfill.group)
    if group is not None and group.workers:
        raise BackfillRefusedError(
            feature.name,
            f"a backfill of it is running elsewhere ({', '.join(group.workers)}) or has just "
            f"ended; wait for it, or run `headwater backfill cancel {feature.name}`",
        )
    return True


async def cancel_backfill(engine: Engine, feature: str, version: FeatureVersion) -> None:
    """Give up a version that was never served, and remove all that a backfill has made of it."""
    backends, backfill = engine.backends, backfill_of(version)
    cancel = cancelled(engine.clock.now())
    series = version.series
    await engine.catalog.change(lambda state: versions.change_version(state, series, cancel))
    await drop_group(engine, backfill.group)
    entity = version.entity or engine.registry.feature(feature).entity.name
    await backends.online.drop(entity, series)
    await backends.offline.drop(series)
    await remove_folder(engine, version)


async def remove_folder(engine: Engine, version: FeatureVersion) -> None:
    """Remove the events and the results of a backfill, if they are on this machine."""
    if version.backfill is not None:
        folder = backfill_folder(engine, version.backfill)
        await asyncio.to_thread(rmtree, folder, ignore_errors=True)


async def drop_group(engine: Engine, group: str) -> None:
    """Drop the consumer group of a backfill as soon as its last member has left."""
    while True:
        try:
            await engine.backends.groups.drop(group)
        except UnknownGroupError:
            return
        except GroupInUseError:
            await asyncio.sleep(_PAUSE)  # the lease of a member that died expires
        else:
            return


def backfills_folder(engine: Engine) -> Path:
    """Return the folder with the folders of all backfills."""
    settings = engine.settings
    return Path(settings.backfill.folder or Path(settings.home) / "backfills").absolute()


def backfill_folder(engine: Engine, backfill: BackfillState) -> Path:
    """Return the folder with the events and the results of a backfill."""
    return backfills_folder(engine) / backfill.id


def exported_files(folder: Path) -> list[Path]:
    """Return the files of events that were exported for a backfill.

    When its results are in the store, the files are gone, and the tasks of its replay name them.
    """
    events = folder / "events"
    if is_installed(folder):
        tasks = {commit.parent.name for commit in folder.glob("replay/*/commit-*")}
        return [events / f"{task}.parquet" for task in sorted(tasks)]
    return sorted(events.glob("*.parquet"))


async def group_named(engine: Engine, name: str) -> ConsumerGroup | None:
    """Return a consumer group, or None if there is none of this name."""
    groups = await engine.backends.groups.groups()
    return next((group for group in groups if group.name == name), None)


async def unfinished_backfill(engine: Engine, feature: str) -> FeatureVersion:
    """Return the version that a backfill of the feature makes; raise if there is none."""
    name = engine.registry.feature(feature).name
    state = await engine.backends.catalog.load()
    version = _unfinished(engine, state, name)
    if version is None:
        raise InvalidInputError(no_backfill(feature))
    return version
