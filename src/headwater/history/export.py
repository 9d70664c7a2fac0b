"""Export history to a folder of Parquet files, step by step.

Each export adds the rows since the last one. Files are written first and then named by the
manifest, which is replaced in one step, so an export that was killed is completed by the next one.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from headwater.backends.duckdb.segment_files import SegmentFolder, due_for_merge, row_count
from headwater.backends.duckdb.segment_schema import HISTORY
from headwater.core.duckdb_session import session, sweep
from headwater.errors import InvalidInputError
from headwater.history.exported import (
    MANIFEST,
    ExportManifest,
    load_manifest,
    save_manifest,
    translated,
)
from headwater.ports import CatalogState, OfflineStore, Segment

SEGMENT_ROWS = 100_000
"""Files with fewer rows are merged first."""
GRACE = timedelta(minutes=5)
"""How long readers may still use a file whose rows were merged into others."""
_SCRATCH = "scratch"


class ExportReport(msgspec.Struct, frozen=True):
    """The rows that an export added, and the rows and files that the folder has now."""

    added: int
    rows: int
    files: int
    exported_at: datetime


class HistoryExport:
    """An export of one store's history into a folder."""

    def __init__(
        self, offline: OfflineStore, catalog: CatalogState, folder: Path, now: datetime
    ) -> None:
        self._offline = offline
        self._catalog = catalog
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
                self._begin()
                added = await self._add()
                await asyncio.to_thread(self._merge)
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
        found = load_manifest(self._folder)
        if found is None:
            save_manifest(self._folder, self._manifest)
        else:
            self._manifest = found
            _check_same_store(self._folder, found.catalog, self._catalog)
        sweep(self._scratch)
        before = self._now - GRACE
        kept = [
            segment
            for segment in self._manifest.segments
            if segment.retired_at is None or segment.retired_at > before
        ]
        self._save(segments=kept)
        self._files.remove_all_but(segment.name for segment in kept)

    async def _add(self) -> int:
        before = self._manifest
        segment = Segment(self._files.new_name(HISTORY), "history", 0)
        file = self._folder / segment.name
        upto = await self._offline.export_history(file, after=before.upto)
        added = 0
        if upto > before.upto:
            added = await asyncio.to_thread(self._count, file)
        self._save(
            upto=upto,
            exported_at=self._now,
            earliest=_earliest(before, self._catalog),
            catalog=self._catalog,
            segments=[
                *before.segments,
                *([msgspec.structs.replace(segment, rows=added)] * bool(added)),
            ],
        )
        return added

    def _count(self, file: Path) -> int:
        with session(self._scratch) as duck:
            return row_count(duck, file)

    def _merge(self) -> None:
        while (merge := due_for_merge(self._manifest.live, SEGMENT_ROWS)) is not None:
            with session(self._scratch) as duck:
                merged = self._files.merge(duck, HISTORY, merge)
            old = {segment.name for segment in merge.segments}
            rest = [
                msgspec.structs.replace(each, retired_at=self._now) if each.name in old else each
                for each in self._manifest.segments
            ]
            self._save(segments=[*rest, *merged])

    def _save(self, **changes: object) -> None:
        self._manifest = msgspec.structs.replace(self._manifest, **changes)
        save_manifest(self._folder, self._manifest)


def _earliest(before: ExportManifest, catalog: CatalogState) -> datetime | None:
    """Return the moment before which rows may be missing.

    Rows that were pruned after they were exported are still in the files.
    """
    pruned = catalog.pruned.history
    is_gap = pruned is not None and (before.exported_at is None or before.exported_at < pruned)
    return pruned if is_gap else before.earliest


def _check_same_store(folder: Path, before: CatalogState, now: CatalogState) -> None:
    """Raise InvalidInputError if no version of a feature is the one that was exported."""
    pairs = [
        (old.created_at, new.created_at)
        for name, entry in before.features.items()
        if name in now.features
        for old, new in zip(entry.versions, now.features[name].versions, strict=False)
    ]
    if pairs and all(old != new for old, new in pairs):
        raise InvalidInputError(
            f"{folder} has the history of another store, whose features were created at other "
            "times; name a new or empty folder"
        )
