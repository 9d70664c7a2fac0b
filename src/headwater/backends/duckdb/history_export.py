"""Export history to a folder of Parquet files, step by step.

Each export adds the rows since the last one. Files are written first and then named by the
manifest, which is replaced in one step, so an export that was killed is completed by the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from headwater.backends.duckdb.exported_history import (
    MANIFEST,
    ExportManifest,
    load_manifest,
    save_manifest,
    translated,
)
from headwater.backends.duckdb.segments import (
    HISTORY,
    SegmentFolder,
    SegmentMerge,
    due_for_merge,
)
from headwater.backends.runners.inline import InlineRunner
from headwater.core.duckdb_session import session, sweep
from headwater.core.sql_literals import texts
from headwater.errors import InvalidInputError
from headwater.model.catalog import CatalogState
from headwater.model.history import ExportReport
from headwater.ports import Runner, Segment

LoadCatalog = Callable[[], Awaitable[CatalogState]]


class ExportsHistory(Protocol):
    """The part of an offline store that an export needs."""

    async def export_history(self, file: Path, *, after: int) -> int:
        """Write the rows after a sequence number to a file; return the last number."""


SEGMENT_ROWS = 100_000
"""Files with fewer rows are merged first."""
GRACE = timedelta(minutes=5)
"""How long readers may still use a file whose rows were merged into others."""
_SCRATCH = "scratch"


class MergeTask(msgspec.Struct, frozen=True):
    """Some ranges of buckets of a merge, written as new files of an export."""

    folder: Path
    merge: SegmentMerge

    @property
    def inputs(self) -> Sequence[Path]:
        """The files that are merged."""
        return [self.folder / segment.name for segment in self.merge.segments]

    def run(self) -> list[Segment]:
        """Write the files; if this is repeated, the next export removes those not returned."""
        with session(self.folder / _SCRATCH) as duck:
            return SegmentFolder(self.folder).merge(duck, HISTORY, self.merge)


class HistoryExport:
    """An export of one store's history into a folder."""

    def __init__(
        self,
        offline: ExportsHistory,
        catalog: LoadCatalog,
        folder: Path,
        now: datetime,
        runner: Runner | None = None,
    ) -> None:
        self._offline = offline
        self._runner = runner or InlineRunner()
        self._load_catalog = catalog
        self._catalog = CatalogState()
        self._folder = folder
        self._files = SegmentFolder(folder)
        self._scratch = folder / _SCRATCH
        self._now = now
        self._manifest = ExportManifest()

    async def run(self) -> ExportReport:
        """Add the rows since the last export, and merge small files."""
        with translated(self._folder):
            self._prepare()
            with self._files.lock(wait=False) as held:
                if not held:
                    raise InvalidInputError(
                        f"history is being exported into {self._folder} already; wait until that "
                        "export has ended"
                    )
                self._catalog = await self._load_catalog()
                self._begin()
                await asyncio.to_thread(self._remove_dropped)
                added = await self._add()
                await self._merge()
        manifest = self._manifest
        return ExportReport(added, manifest.rows, len(manifest.live), self._now)

    def _prepare(self) -> None:
        """Create the folder; refuse one with other files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if load_manifest(self._folder) is None:
            own = {"writer.lock", _SCRATCH, f"{MANIFEST}.unfinished"}
            others = sorted({file.name for file in self._folder.iterdir()} - own)
            if others:
                raise InvalidInputError(
                    f"{self._folder} has files that are not part of an export, such as "
                    f"{others[0]}; name a new or empty folder"
                )
        self._scratch.mkdir(exist_ok=True)

    def _begin(self) -> None:
        """Load the manifest, and remove the files of exports that were killed."""
        manifest = load_manifest(self._folder)
        if manifest is None:
            save_manifest(self._folder, self._manifest)
        else:
            self._manifest = manifest
            _check_same_store(self._folder, manifest.catalog, self._catalog)
        sweep(self._scratch)
        before = self._now - GRACE
        kept = [
            segment
            for segment in self._manifest.segments
            if segment.retired_at is None or segment.retired_at > before
        ]
        self._save(segments=kept)
        self._files.remove(self._files.others(segment.name for segment in kept))

    def _remove_dropped(self) -> None:
        """Remove the values of features that were dropped since the last export.

        One that is declared again has the same series.
        """
        dropped = _dropped(self._manifest.catalog, self._catalog)
        if not dropped:
            return
        condition = f"feature IN ({texts(dropped)})"
        for segment in self._manifest.live:
            with session(self._scratch) as duck:
                if count := self._files.count(duck, segment, condition):
                    written = self._files.without(duck, HISTORY, segment, condition, count)
                    self._replace([segment], written)

    async def _add(self) -> int:
        before = self._manifest
        segment = Segment(self._files.new_name(HISTORY), "history", 0)
        file = self._folder / segment.name
        upto = await self._offline.export_history(file, after=before.upto)
        added = 0
        if upto > before.upto:
            added = await asyncio.to_thread(self._count, segment)
        # Read after the rows, which may have been pruned meanwhile.
        pruned = (await self._load_catalog()).pruned.history
        self._save(
            upto=upto,
            exported_at=self._now,
            earliest=_earliest(before, pruned),
            catalog=self._catalog,
            segments=[
                *before.segments,
                *([msgspec.structs.replace(segment, rows=added)] * bool(added)),
            ],
        )
        return added

    def _count(self, segment: Segment) -> int:
        with session(self._scratch) as duck:
            return self._files.count(duck, segment, "true")

    async def _merge(self) -> None:
        while (merge := due_for_merge(self._manifest.live, SEGMENT_ROWS)) is not None:
            # One range takes less time than to begin with a runner.
            runner = self._runner if len(merge.ranges) > 1 else InlineRunner()
            slots = min(await runner.slots(), len(merge.ranges))
            tasks = [
                MergeTask(self._folder, SegmentMerge(merge.segments, merge.ranges[slot::slots]))
                for slot in range(slots)
            ]
            async with aclosing(runner.map(tasks)) as parts:
                merged = [segment async for part in parts for segment in part]
            merged.sort(key=lambda segment: segment.buckets)
            await asyncio.to_thread(self._replace, merge.segments, merged)

    def _replace(self, segments: Sequence[Segment], written: Sequence[Segment]) -> None:
        old = {segment.name for segment in segments}
        rest = [
            msgspec.structs.replace(segment, retired_at=self._now)
            if segment.name in old
            else segment
            for segment in self._manifest.segments
        ]
        self._save(segments=[*rest, *written])

    def _save(self, **changes: object) -> None:
        self._manifest = msgspec.structs.replace(self._manifest, **changes)
        save_manifest(self._folder, self._manifest)


def _earliest(before: ExportManifest, pruned: datetime | None) -> datetime | None:
    """Return the moment before which rows may be missing.

    Rows that were pruned after they were exported are still in the files.
    """
    is_gap = pruned is not None and (before.exported_at is None or before.exported_at < pruned)
    return pruned if is_gap else before.earliest


def _check_same_store(folder: Path, before: CatalogState, now: CatalogState) -> None:
    """Raise InvalidInputError if no version of a feature is one that was exported."""
    exported = _created(before)
    if exported and len(_dropped(before, now)) == len(exported):
        raise InvalidInputError(
            f"{folder} has the history of another store, whose features were created at other "
            "times, or all its features were dropped; name a new or empty folder"
        )


def _dropped(before: CatalogState, now: CatalogState) -> list[str]:
    """Return the series of which no version exists any more."""
    present = _created(now)
    return [
        series
        for series, moments in _created(before).items()
        if moments.isdisjoint(present.get(series, ()))
    ]


def _created(state: CatalogState) -> dict[str, set[datetime]]:
    """Return when the versions of each series were created; a converted one shares its series."""
    created_of: dict[str, set[datetime]] = {}
    for entry in state.features.values():
        for version in entry.versions:
            created_of.setdefault(version.series, set()).add(version.created_at)
    return created_of
