"""Routes for history as a whole: training sets, imports and exports."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from headwater.access.bounded_verbs import CallBounds
from headwater.access.errors import SlowCallError, TooManyCallsError
from headwater.declarations.runtime import runtime_of
from headwater.history.columns import JSON, column_type
from headwater.http.routing.request_errors import TableTooLargeError
from headwater.http.routing.request_parsing import UploadedFile
from headwater.http.routing.route import Route
from headwater.http.routing.streaming import ProgressResponse, Reporter
from headwater.model.history import (
    CSV,
    PARQUET,
    ColumnName,
    ExportBody,
    FeatureNames,
    HistoryCatalog,
    ImportReport,
    Known,
    SentHistory,
    SentTable,
    SnapshotId,
    TimeZoneName,
    WithAsOf,
)
from headwater.model.problems import NDJSON, ActionLine, FileLine, ProgressStep
from headwater.store.feature_store import FeatureStore

_TABLES = (PARQUET, CSV)


class History:
    """Reads past values for the rows of tables, and imports and exports history."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._private = not store.settings.record.include_content
        self._limits = limits = store.settings.http
        self._bounds = CallBounds(
            "reads, imports or exports of tables",
            limits.max_tables,
            limits.table_timeout,
            ("http.max_tables", "http.table_timeout"),
        )

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v1/history/read",
                "read",
                self.read_past_values,
                accepts=_TABLES,
                max_bytes="max_upload_bytes",
                returns=NDJSON,
                documents=FileLine[ProgressStep, SentTable],
                raises=(TableTooLargeError, TooManyCallsError, SlowCallError),
            ),
            Route(
                "POST",
                "/v1/history/import",
                "admin",
                self.import_history,
                accepts=_TABLES,
                max_bytes="max_upload_bytes",
                returns=NDJSON,
                documents=ActionLine[ProgressStep, ImportReport],
                raises=(TableTooLargeError, TooManyCallsError, SlowCallError),
            ),
            Route("GET", "/v1/history/catalog", "read", self.read_catalog),
            Route(
                "POST",
                "/v1/history/export",
                "read",
                self.export_history,
                returns=NDJSON,
                documents=FileLine[ProgressStep, SentHistory],
                raises=(TooManyCallsError, SlowCallError),
            ),
        ]

    async def read_past_values(
        self,
        body: UploadedFile,
        features: FeatureNames,
        *,
        at: ColumnName = "timestamp",
        known: Known = False,
        with_as_of: WithAsOf = False,
        snapshot: SnapshotId | None = None,
    ) -> ProgressResponse:
        """Add the values that features had at the time of each row to a table.

        The lines have the progress, then a Parquet file as ``data``, then the result.
        """
        names, output = _names(features), body.folder / "output.parquet"

        async def action(report: Reporter) -> SentTable:
            await self._bounds.run(partial(read, report))
            return SentTable(await report.send_file(output), self._json_columns(names))

        async def read(report: Reporter) -> None:
            with body.named():
                await self._check_size(body.path)
                await self._store.get_historical_features(
                    body.path,
                    names,
                    at=at,
                    known=known,
                    with_as_of=with_as_of,
                    output=output,
                    snapshot=snapshot,
                    progress=report,
                )

        response = ProgressResponse(action, private=self._private, closing=body.close)
        return await response.begun(checks=True)

    async def _check_size(self, file: Path) -> None:
        """Raise TableTooLargeError if a file has more rows or columns than a request may send."""
        limits = self._limits
        size = await runtime_of(self._store).tables.size(file, limits.max_table_columns)
        if size.columns > limits.max_table_columns:
            raise TableTooLargeError(size.columns, "columns", limits.max_table_columns)
        if size.rows > limits.max_table_rows:
            raise TableTooLargeError(size.rows, "rows", limits.max_table_rows)

    def _json_columns(self, names: list[str]) -> list[str]:
        registry = runtime_of(self._store).registry
        return [name for name in names if column_type(registry.feature(name).codec) == JSON]

    async def import_history(
        self,
        body: UploadedFile,
        features: FeatureNames,
        *,
        id: ColumnName | None = None,
        value: ColumnName | None = None,
        at: ColumnName | None = None,
        written: ColumnName | None = None,
        time_zone: TimeZoneName | None = None,
    ) -> ProgressResponse:
        """Add the values of a table to history, with the times that they are of.

        The lines have the progress, then the result. Values that history has are left out, so
        the request can be repeated.
        """

        async def action(report: Reporter) -> ImportReport:
            with body.named():
                await self._check_size(body.path)
                return await self._store.history.import_file(
                    body.path,
                    _names(features),
                    id=id,
                    value=value,
                    at=at,
                    written=written,
                    time_zone=time_zone,
                    progress=report,
                )

        response = ProgressResponse(
            lambda report: self._bounds.run(partial(action, report)),
            private=self._private,
            closing=body.close,
        )
        return await response.begun(checks=True)

    async def read_catalog(self) -> HistoryCatalog:
        """Read the versions of all features, whose rows an export has."""
        engine = await runtime_of(self._store).open()
        await engine.catalog.follow()
        await engine.catalog.declare()
        return HistoryCatalog(engine.catalog.state, engine.clock.now())

    async def export_history(self, body: ExportBody) -> ProgressResponse:
        """Send the rows of history after a sequence number.

        The lines have a Parquet file as ``data``, then the result.
        """

        async def export(file: Path) -> int:
            async with runtime_of(self._store).audited(
                "history.export", after=body.after
            ) as engine:
                return await engine.backends.offline.export_history(file, after=body.after)

        async def action(report: Reporter) -> SentHistory:
            with TemporaryDirectory(prefix="headwater-") as folder:
                file = Path(folder) / "history.parquet"
                upto = await self._bounds.run(partial(export, file))
                sent = await report.send_file(file) if upto > body.after else 0
            return SentHistory(sent, upto)

        return await ProgressResponse(action, private=self._private).begun(checks=True)


def _names(features: str) -> list[str]:
    return [name.strip() for name in features.split(",")]
