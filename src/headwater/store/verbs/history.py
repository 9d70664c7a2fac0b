"""History as a whole: imports and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef
from headwater.model.history import ExportReport, ImportReport
from headwater.model.progress import OnStep
from headwater.store.verbs.verb import Verbs


class HistoryVerbs(Verbs):
    """``store.history``: import feature tables, export history to files."""

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
        run again. `store.admin.rebuild` takes the last values over as online values. A client sends
        the file to the server, which limits its size by ``http.max_upload_bytes``.

        >>> await store.history.import_file("spend.csv", ["total_spend"])
        <ImportReport rows=2 values=2 added=2 missing=0>
        >>> (await store.admin.rebuild()).values
        3
        """
        return await self._runtime.tables.import_file(
            Path(file),
            features,
            progress,
            id=id,
            value=value,
            at=at,
            written=written,
            time_zone=time_zone,
        )

    async def export(self, folder: str | Path) -> ExportReport:
        """Write the history of all features to Parquet files; again, add the rows since then.

        ``get_historical_features(…, exported=folder)`` of a store reads them without loading the
        database.
        An export that was interrupted is simply run again.

        >>> report = await store.history.export("history")
        >>> report.added == report.rows
        True
        """
        return await self._runtime.tables.export(Path(folder))


class SyncHistoryVerbs(Blocking[HistoryVerbs]):
    """The blocking form of imports and exports."""

    import_file = blocking(HistoryVerbs.import_file)
    export = blocking(HistoryVerbs.export)
