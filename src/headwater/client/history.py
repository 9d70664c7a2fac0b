"""The verbs of a client for history as a whole: imports and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.client.server import Server
from headwater.client.stream_lines import counted, written
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import ConnectionLostError
from headwater.model.catalog import CatalogState
from headwater.model.history import (
    CSV,
    PARQUET,
    ExportBody,
    HistoryCatalog,
    ImportReport,
    SentHistory,
)
from headwater.model.progress import OnStep

if TYPE_CHECKING:
    from headwater.model.history import ExportReport


class HistoryCalls:
    """``client.history``: import feature tables, export history to files."""

    def __init__(self, server: Server) -> None:
        self._server = server

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

        The options are those of ``store.history.import_file``. The file is sent to the server,
        which limits its size by ``http.max_upload_bytes``. Values that history has are left out,
        so an import that was interrupted is simply run again.

        >>> await client.history.import_file("spend.csv", ["total_spend"])
        <ImportReport rows=2 values=2 added=2 missing=0>
        """
        from headwater.history.frames.files import rows_of  # noqa: PLC0415 - loads DuckDB

        path = Path(file)
        rows_of(path)  # checks the file
        return await self._server.upload(
            ImportReport,
            "/v1/history/import",
            file=path,
            media_type=PARQUET if path.suffix == ".parquet" else CSV,
            on_line=counted(progress),
            features=",".join(map(feature_name, features)),
            id=id,
            value=value,
            at=at,
            written=written,
            time_zone=time_zone,
        )

    async def export(self, folder: str | Path) -> ExportReport:
        """Write the history of all features to Parquet files; again, add the rows since then.

        ``get_historical_features(…, exported=folder)`` of a store reads them. An export that was
        interrupted is simply run again.

        >>> report = await client.history.export("history")
        >>> report.added == report.rows
        True
        """
        from headwater.backends.duckdb.history_export import HistoryExport  # noqa: PLC0415 - loads DuckDB

        now = (await self._server.get(HistoryCatalog, "/v1/history/catalog")).now
        rows = ServerRows(self._server)
        return await HistoryExport(rows, rows.catalog, Path(folder), now).run()


class ServerRows:
    """The rows of history of a server, for an export."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def catalog(self) -> CatalogState:
        """Return the versions of all features."""
        return (await self._server.get(HistoryCatalog, "/v1/history/catalog")).catalog

    async def export_history(self, file: Path, *, after: int) -> int:
        """Write the rows with a sequence number above ``after`` to a file; return the last."""
        body, partial = ExportBody(after), file.with_suffix(".unfinished")
        with partial.open("wb") as opened:
            sent = await self._server.follow(
                SentHistory, "/v1/history/export", body=body, on_line=written(opened)
            )
        if partial.stat().st_size != sent.bytes:
            raise ConnectionLostError(self._server.url, "parts of the history are missing")
        if sent.upto > after:
            partial.rename(file)
        else:
            partial.unlink()
        return sent.upto
