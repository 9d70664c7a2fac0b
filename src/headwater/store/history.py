"""The verbs of a store for history as a whole: imports and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef
from headwater.features.call_scope import check_not_replaying
from headwater.model.progress import OnStep
from headwater.store.runtime import Runtime
from headwater.store.validation import requested
from headwater.store.writing import check_stored

if TYPE_CHECKING:
    from headwater.model.history import ExportReport, ImportReport


class HistoryVerbs:
    """``store.history``: import feature tables, export history to files."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def import_file(
        self,
        file: str | Path,
        features: Sequence[FeatureRef],
        *,
        id: str | None = None,
        value: str | None = None,
        at: str | None = None,
        written: str | None = None,
        time_zone: str | None = None,
        progress: OnStep | None = None,
    ) -> ImportReport:
        """Add the values of a Parquet or CSV file to history, with the times that they are of.

        The columns, unless they are named: ``id`` is the entity's id field, ``value`` the name of
        the feature or ``value``, ``at`` is ``event_timestamp`` or ``timestamp``, and ``written``
        is ``created`` or ``created_timestamp``; without such a column, values are written now.
        Times without a time zone are refused unless ``time_zone`` is given. Values in CSV are read
        by the type of their feature; an empty text is written as ``""``.

        Rows that history has already are left out, so an import that was interrupted is simply
        run again. `store.admin.rebuild` takes the last values over as online values.

        >>> await store.history.import_file("spend.csv", ["total_spend"])
        <ImportReport rows=2 values=2 added=2 missing=0>
        >>> (await store.admin.rebuild()).values
        3
        """
        from headwater.history.importing import ImportColumns, import_file  # noqa: PLC0415 - loaded with the engine

        check_not_replaying("import_file")
        engine = await self._runtime.open()
        await engine.catalog.follow()
        await engine.catalog.declare()
        definitions = requested(engine.registry, features)
        engine.registry.one_entity([feature.name for feature in definitions])
        for feature in definitions:
            check_stored(feature)
            engine.registry.check_writable(feature)
        return await import_file(
            Path(file),
            definitions,
            ImportColumns(id=id, value=value, at=at, written=written, time_zone=time_zone),
            engine.backends,
            now=engine.clock.micros(),
            latest=engine.clock.now() + engine.settings.ingest.future_tolerance,
            progress=progress,
        )

    async def export(self, folder: str | Path) -> ExportReport:
        """Write the history of all features to Parquet files; again, add the rows since then.

        ``get_historical_features(…, exported=folder)`` reads them without loading the database.
        An export that was interrupted is simply run again.

        >>> report = await store.history.export("history")
        >>> report.added == report.rows
        True
        """
        from headwater.backends.duckdb.history_export import HistoryExport  # noqa: PLC0415 - loaded with the engine

        engine = await self._runtime.open()
        catalog = engine.catalog.follow
        await catalog()
        await engine.catalog.declare()
        export = HistoryExport(engine.backends.offline, catalog, Path(folder), engine.clock.now())
        return await export.run()


class SyncHistoryVerbs(Blocking[HistoryVerbs]):
    """``store.sync.history``."""

    import_file = blocking(HistoryVerbs.import_file)
    export = blocking(HistoryVerbs.export)
