"""The verbs of a client for history as a whole: imports and exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.client.server import Server, counted, sending, written
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import ConnectionLostError
from headwater.model.catalog import CatalogState
from headwater.model.history import (
    CSV,
    PARQUET,
    ExportBody,
    ExportReport,
    HistoryCatalog,
    ImportReport,
    SentHistory,
)
from headwater.model.progress import OnStep
from headwater.store.verbs.history import HistoryVerbs


class HistoryCalls(HistoryVerbs):
    """``client.history``: import feature tables, export history to files."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._server = server

    @sending(HistoryVerbs.import_file)
    async def import_file(
        self,
        file: str | Path,
        features: Sequence[FeatureRef],
        progress: OnStep | None,
        **columns: str | None,
    ) -> ImportReport:
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
            **columns,
        )

    @sending(HistoryVerbs.export)
    async def export(self, folder: str | Path) -> ExportReport:
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
