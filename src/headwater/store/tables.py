"""Tables and history: point-in-time reads, from the store or an export, imports and exports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headwater.backends.duckdb.exported_history import ExportedHistory, translated
from headwater.backends.duckdb.history_export import HistoryExport
from headwater.backends.runners.choice import runner_of
from headwater.core.interruptible import in_thread
from headwater.declarations.feature_handles import FeatureRef, check_sequences, feature_name
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.features.call_scope import check_not_replaying, track_source
from headwater.features.caller_limits import limited_caller
from headwater.history.feast import FeastExport
from headwater.history.frames.files import TableSize, table_size
from headwater.history.frames.tables import is_sql, open_frame, relation_of
from headwater.history.importing import ImportColumns, import_file
from headwater.history.past_reads import PastQueries
from headwater.history.point_in_time import HistoryRequest, PastSources, needs_store, read_history
from headwater.model.catalog import CatalogState
from headwater.model.history import SNAPSHOT, ExportReport, FeastReport, ImportReport
from headwater.model.problems import OnStep
from headwater.model.values import EVERYTHING
from headwater.ports import LakeSnapshot
from headwater.store.openlineage import lineage_of
from headwater.store.runtime import Runtime
from headwater.store.writing import check_stored


class _Past(msgspec.Struct, frozen=True):
    """The versions of features that are read, and from where."""

    features: Sequence[FeatureDef]
    sources: PastSources
    version: str
    """What names the state of history that is read."""


class Tables:
    """Tables of callers, which are read from history and added to it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def read(
        self,
        frame: Any,
        features: Sequence[FeatureRef],
        *,
        at: str,
        known: bool,
        with_as_of: bool,
        output: str | Path | None,
        exported: str | Path | None,
        snapshot: int | None,
        progress: OnStep | None,
    ) -> Any:
        """Return a table with the values that features had at the time of each row."""
        limited = limited_caller()
        if limited is not None:
            raise limited.refuse("get_historical_features")
        track_source("other", "historical features")
        runtime = self._runtime
        definitions = _requested(runtime.registry, features)
        is_query = is_sql(frame)
        if exported is None:
            is_open = needs_store(definitions, known=known)
            past = await _stored(runtime, features, snapshot, is_open=is_open)
        elif snapshot is not None:
            raise InvalidInputError("give either exported or snapshot: both say what is read")
        else:
            is_open = is_query or needs_store(definitions, known=known)
            sources = (await _stored(runtime, features)).sources if is_open else None
            history = ExportedHistory(exported, runner_of(runtime.settings.runner, of_frames=True))
            past = await _exported(history, definitions, runtime, sources)
        if is_query:
            track_source(*EVERYTHING)
            engine = await runtime.open()
            rows = await engine.backends.offline.query(frame, engine.registry.sources)
            frame = relation_of(rows, [at, *(feature.entity.id_field for feature in past.features)])
        request = HistoryRequest(
            features=past.features,
            at=at,
            known=known,
            with_as_of=with_as_of,
            progress=progress,
            metadata={} if snapshot is None else {SNAPSHOT: str(snapshot)},
        )
        opened = open_frame(frame, None if output is None else Path(output))
        names = [feature.name for feature in definitions]
        async with lineage_of(runtime, "training_set", "+".join(names)) as run:
            run.reads([feature.series for feature in past.features], past.version)
            result = await read_history(opened, request, past.sources)
            if isinstance(result, Path):
                run.writes_file(result, names)
            return result

    async def size(self, file: Path, most_columns: int) -> TableSize:
        """Return the size of a file before it is read; without rows if it has more columns."""
        return await in_thread(table_size, file, most_columns)

    async def import_file(
        self,
        file: Path,
        features: Sequence[FeatureRef],
        progress: OnStep | None,
        **columns: str | None,
    ) -> ImportReport:
        """Add the values of a file to history."""
        check_not_replaying("import_file")
        engine = await self._runtime.open()
        await engine.catalog.follow()
        await engine.catalog.declare()
        definitions = _requested(engine.registry, features)
        names = [feature.name for feature in definitions]
        entity = engine.registry.one_entity(names)
        for feature in definitions:
            # Contributions are imported into families; their features are refused with the remedy.
            if feature.windows is None and feature.window is None:
                check_stored(feature)
            engine.registry.check_writable(feature)
        async with self._runtime.audited("history.import_file", entity.name, features=names):
            return await import_file(
                file,
                definitions,
                ImportColumns(**columns),
                engine.backends,
                clock=engine.clock,
                latest=engine.clock.now() + engine.settings.ingest.future_tolerance,
                progress=progress,
            )

    async def export(self, folder: Path) -> ExportReport:
        """Write the rows of history that a folder does not have yet to files in it."""
        async with self._runtime.audited("history.export", str(folder)) as engine:
            catalog = engine.catalog.follow
            await catalog()
            await engine.catalog.declare()
            moment = engine.clock.now()
            async with lineage_of(self._runtime, "export", folder.name) as run:
                stored = [f.series for f in engine.registry.features.values() if f.is_stored]
                run.reads(stored, moment.isoformat())
                runner = runner_of(engine.settings.runner, of_frames=True)
                export = HistoryExport(engine.backends.offline, catalog, folder, moment, runner)
                report = await export.run()
                run.writes_file(folder, rows=report.rows)
            return report

    async def export_feast(
        self, folder: Path, features: Sequence[FeatureRef] | None
    ) -> FeastReport:
        """Replace the files of a Feast repository by those of the present history."""
        async with self._runtime.audited("history.export_feast", str(folder)) as engine:
            await engine.catalog.follow()
            await engine.catalog.declare()
            named = list(engine.registry.features) if features is None else features
            past = await _stored(self._runtime, named)
            # What queries return now is not in history before their next run.
            sources = msgspec.structs.replace(past.sources, queries=None)
            async with lineage_of(self._runtime, "export", folder.name) as run:
                run.reads([f.series for f in past.features if f.is_stored], past.version)
                export = FeastExport(folder, past.features, sources, engine.backends.offline)
                with translated(folder):
                    report = await export.run()
                run.writes_file(folder, rows=sum(view.rows for view in report.views))
            return report


def _requested(registry: Registry, features: Sequence[FeatureRef]) -> list[FeatureDef]:
    """Return the definitions of features, each of which may be named once."""
    check_sequences(features, ())
    names = [feature_name(feature) for feature in features]
    if not names:
        raise InvalidInputError("name at least one feature")
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise InvalidInputError(f"feature {twice[0]!r} is named twice; name it once")
    definitions = [registry.feature(name) for name in names]
    for feature in definitions:
        feature.check_stored()
    return definitions


async def _stored(
    runtime: Runtime,
    features: Sequence[FeatureRef],
    snapshot: int | None = None,
    *,
    is_open: bool = False,
) -> _Past:
    """Read from the store, or a snapshot of its lake; ``is_open`` if both are read."""
    engine = await runtime.open()
    past: LakeSnapshot | None = None
    if snapshot is not None:
        if engine.backends.lake is None:
            raise InvalidInputError("this store has no lake, and so no snapshots; set lake.url")
        past = await (await engine.backends.lake()).at(snapshot)

    async def earliest() -> datetime | None:
        if past is not None and not is_open:
            return past.pruned
        return (await engine.catalog.follow()).pruned.history

    await engine.catalog.follow()
    queries = PastQueries(engine.backends, engine.registry, engine.clock)
    return _Past(
        _requested(engine.registry, features),
        PastSources(
            engine.backends.offline if past is None else past.reader,
            runner_of(runtime.settings.runner),
            engine.reader,
            queries,
            earliest,
            engine.registry.past_names,
            runtime.settings.runner.folder or None,
        ),
        runtime.clock.now().isoformat() if snapshot is None else str(snapshot),
    )


async def _exported(
    export: ExportedHistory,
    features: Sequence[FeatureDef],
    runtime: Runtime,
    sources: PastSources | None,
) -> _Past:
    """Read stored values from an export; only computed ones and queries need the store.

    A store that is open knows the names that features were given since the export.
    """

    async def earliest() -> datetime | None:
        return export.manifest().earliest

    engine, declared = runtime.current(), runtime.registry.features
    present: CatalogState | None = None
    if engine is not None:
        await engine.catalog.try_to_follow()
        present = engine.catalog.state
    runner, folder = runtime.settings.runner, runtime.settings.runner.folder or None
    past = sources or PastSources(export, runner_of(runner), folder=folder)
    return _Past(
        export.versions_of(features, declared, present),
        msgspec.structs.replace(
            past, history=export, earliest=earliest, names=export.names(declared, present)
        ),
        str(export.manifest().upto),
    )
