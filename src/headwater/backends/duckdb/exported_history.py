"""History that was exported to a folder of Parquet files, and frames that are read from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import duckdb
import msgspec

from headwater.backends.duckdb.frame_plan import FrameSource, answer_frame
from headwater.backends.duckdb.series_rows import write_series
from headwater.backends.runners.inline import InlineRunner
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import glob_literal, headline, scalar, session
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import PastNames, earlier_ttls, meaning_at
from headwater.declarations.series import declared_entry, served_series
from headwater.errors import BackendError, InvalidInputError
from headwater.model.catalog import CatalogEntry, CatalogState
from headwater.ports import FrameQuery, Runner, Segment, SeriesFile, SeriesQuery

MANIFEST = "manifest.json"
_FORMAT = 1

_LATE = 'SELECT count(*) FROM read_parquet({file}, hive_partitioning = false) WHERE "at" > {end}'


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The list of an export's files: only a file that is named here is part of the export."""

    format: int = _FORMAT
    upto: int = 0
    """The last sequence number of history that was exported."""
    exported_at: datetime | None = None
    """The moment up to which the export is complete."""
    earliest: datetime | None = None
    """The moment before which rows may be missing, because they were pruned first."""
    catalog: CatalogState = CatalogState()
    segments: Sequence[Segment] = ()

    @property
    def live(self) -> list[Segment]:
        """The files that together have every row once."""
        return [segment for segment in self.segments if segment.retired_at is None]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.live)


def load_manifest(folder: Path) -> ExportManifest | None:
    """Return the manifest of a folder, or None if it has none."""
    try:
        raw = (folder / MANIFEST).read_bytes()
        manifest = msgspec.json.decode(raw, type=ExportManifest)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{folder / MANIFEST} is not the manifest of an export: {error}; export history into "
            "another folder"
        ) from error
    if manifest.format != _FORMAT:
        raise InvalidInputError(
            f"{folder} has an export of format {manifest.format}, and this Headwater reads format "
            f"{_FORMAT}; export history into another folder"
        )
    return manifest


def save_manifest(folder: Path, manifest: ExportManifest) -> None:
    """Replace the manifest of a folder, durably and in one step."""
    unfinished = folder / f"{MANIFEST}.unfinished"
    with unfinished.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / MANIFEST)


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Raise Headwater's errors in place of DuckDB's and the system's."""
    try:
        yield
    except duckdb.Error as error:
        raise BackendError(f"the export in {folder} failed: {headline(error)}") from error
    except OSError as error:
        raise BackendError(
            f"the export in {folder} failed: {error.strerror}; check free space and permissions, "
            "then run the command again"
        ) from error


class ExportedHistory:
    """Frames over an export, without the store that it is from.

    >>> history = ExportedHistory("training/history")
    """

    def __init__(self, folder: str | Path, runner: Runner | None = None) -> None:
        self._folder = Path(folder)
        self._runner = runner or InlineRunner()

    def manifest(self) -> ExportManifest:
        """Return what the export has; raise InvalidInputError if there is none."""
        with translated(self._folder):
            manifest = load_manifest(self._folder)
        if manifest is None or manifest.exported_at is None:
            raise InvalidInputError(
                f"{self._folder} has no exported history; run `headwater history export "
                f"{self._folder}` first"
            )
        return manifest

    def versions_of(
        self,
        features: Sequence[FeatureDef],
        declared: Collection[str],
        present: CatalogState | None = None,
    ) -> list[FeatureDef]:
        """Return features in the version that was served at the time of the export.

        The present catalog, if it is known, has also the names that features were given since.
        Raise InvalidInputError if the export has not got a feature.
        """
        manifest = self.manifest()
        state = present or manifest.catalog
        return [
            self._exported(
                feature, declared_entry(state, _stored_name(feature), declared), manifest
            )
            if feature.is_stored or feature.window is not None
            else feature
            for feature in features
        ]

    def _exported(
        self, feature: FeatureDef, entry: CatalogEntry | None, manifest: ExportManifest
    ) -> FeatureDef:
        end = manifest.exported_at
        created = [] if entry is None else [version.created_at for version in entry.versions]
        since = [*created, *(former.since for former in (entry.meanings if entry else ()))]
        if entry is None or end is None or not since or min(since) > end:
            raise InvalidInputError(
                f"the export in {self._folder} has no feature {feature.name!r}, which was declared "
                f"or renamed after it was made; run `headwater history export {self._folder}` again"
            )
        feature = msgspec.structs.replace(feature, earlier_ttls=earlier_ttls(entry, feature))
        meaning = meaning_at(entry.meanings, end)
        if meaning is None or meaning.series is None:
            name = _stored_name(feature)
            series = served_series(manifest.catalog, name, [name])
            return msgspec.structs.replace(feature, series=series)
        foreign = (
            None if meaning.entity == feature.entity.name else (meaning.series, meaning.entity)
        )
        exported = msgspec.structs.replace(feature, series=meaning.series, foreign=foreign)
        exported.check_stored()
        return exported

    def names(self, declared: Collection[str], present: CatalogState | None = None) -> PastNames:
        """Return what features were over time; versions that were dropped since are kept here."""
        exported = self.manifest().catalog
        return PastNames(present or exported, declared, exported)

    async def read_frame(
        self, query: FrameQuery, answer: Path, progress: Callable[[int], None] | None = None
    ) -> None:
        """Answer a frame as the store would have at the time of the export."""

        def source(folder: Path) -> FrameSource:
            manifest = self.manifest()
            self._check_versions([column.series for column in query.columns], manifest)
            self._check_end(query.points, manifest, folder)
            return FrameSource(self._folder, manifest.live)

        with translated(self._folder):
            await answer_frame(
                query, answer, source, self._runner, answer.parent, progress, self._lost
            )

    async def write_series(self, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
        """Write rows as the store would have at the time of the export."""

        def source(temporary: Path) -> FrameSource:
            manifest = self.manifest()
            self._check_versions([query.series], manifest)
            self._check_end(query.points, manifest, temporary)
            return FrameSource(self._folder, manifest.live)

        with translated(self._folder):
            return await write_series(query, folder, source, folder, self._lost)

    def _check_versions(self, read: Sequence[str], manifest: ExportManifest) -> None:
        """Raise InvalidInputError if a version is newer than the export, which has none of it."""
        series = {version.series for version in manifest.catalog.versions()}
        for name in read:
            if "@" in name and name not in series:
                raise InvalidInputError(
                    f"the export in {self._folder} is older than {name!r}, the present "
                    f"version of a feature; run `headwater history export {self._folder}` again"
                )

    def _check_end(self, points: Path, manifest: ExportManifest, scratch: Path) -> None:
        """Raise InvalidInputError if the frame has rows from after the export."""
        end = manifest.exported_at
        if end is None:
            return
        with session(scratch) as duck:
            sql = _LATE.format(file=glob_literal(points), end=to_micros(end))
            count = scalar(duck.run(sql))
        if count:
            raise InvalidInputError(
                f"{count} rows of the frame are later than {end.isoformat(timespec='seconds')}, "
                f"when history was exported to {self._folder}; run `headwater history export "
                f"{self._folder}` again, or leave these rows out"
            )

    def _lost(self, names: Sequence[str]) -> BackendError:
        return BackendError(
            f"the export in {self._folder} has no file {', '.join(names)}; restore it from a "
            "backup, or export history into another folder"
        )


def _stored_name(feature: FeatureDef) -> str:
    """Return the name under which the catalog has the series of a feature."""
    return feature.name if feature.window is None else feature.window.family
