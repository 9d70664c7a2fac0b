"""Feature values: read them as they are now and as they were, import and export them."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

from headwater.core.blocking import Blocking, blocking
from headwater.core.progress import callback, with_bar
from headwater.declarations.feature_handles import (
    Feature,
    FeatureRef,
    check_sequences,
    feature_name,
)
from headwater.errors import UnknownNameError
from headwater.model.callers import current_caller
from headwater.model.features import FeatureRow, HistoricalValue
from headwater.model.history import ExportReport, FeastReport, ImportReport
from headwater.model.kinds import EntityId
from headwater.model.problems import OnStep
from headwater.model.windows import EntityWindows
from headwater.store.verbs.catalog import NamedFeature
from headwater.store.verbs.verb import Sent, Verbs, verb

AnyEntityId = Annotated[str | int, Sent(EntityId)]
Id = TypeVar("Id", str, int)
T = TypeVar("T")


class FeatureVerbs(Verbs):
    """Reads of values, without the work for declared verbs, which would take longer than a read."""

    @overload
    def get_feature(
        self, name: Feature[T], entity_id: str | int
    ) -> Coroutine[Any, Any, T | None]: ...

    @overload
    def get_feature(self, name: str, entity_id: str | int) -> Coroutine[Any, Any, Any]: ...

    def get_feature(self, name: FeatureRef, entity_id: str | int) -> Coroutine[Any, Any, Any]:
        """Return one feature's value for one entity, in its annotated type; None if there is none.

        ``name`` is the feature's name or its handle, here and in the other verbs. A client knows
        the type by the handle; the values of a name are JSON there.

        >>> await store.get_feature("total_spend", "ada")
        25.0
        """
        # The verb that handlers call most: an open store returns the reader's coroutine itself.
        if name.__class__ is not str:
            name = feature_name(name)
        engine = self._runtime.current()
        if engine is None or current_caller() is not None:
            return self._open_and_get(name, entity_id)
        return engine.reader.value(name, entity_id)

    async def _open_and_get(self, name: str, entity_id: str | int) -> Any:
        await self._runtime.check_limits([name], [entity_id])
        engine = await self._runtime.open()
        return await engine.reader.value(name, entity_id)

    async def get_features(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]:
        """Return many features of many entities in one round trip, by entity id, then by name.

        >>> await store.get_features(["total_spend"], ["ada", "bob"])
        {'ada': {'total_spend': 25.0}, 'bob': {'total_spend': None}}
        """
        check_sequences(names, entity_ids)
        caller = current_caller()
        if caller is not None and caller.limits is not None:
            await self._runtime.check_limits(names, entity_ids)
        engine = self._runtime.current() or await self._runtime.open()
        rows = await engine.reader.values(names, entity_ids)
        return dict(zip(entity_ids, rows, strict=True))

    async def get_feature_values(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[str | int]
    ) -> list[FeatureRow]:
        """Return values with age and source, one row per entity in the order of ``entity_ids``.

        >>> (row,) = await store.get_feature_values(["total_spend"], ["ada"])
        >>> row["total_spend"].source
        'online'
        """
        check_sequences(names, entity_ids)
        caller = current_caller()
        if caller is not None and caller.limits is not None:
            await self._runtime.check_limits(names, entity_ids)
        engine = self._runtime.current() or await self._runtime.open()
        return await engine.reader.read(names, entity_ids)

    async def get_feature_history(
        self,
        name: FeatureRef,
        entity_id: str | int,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
    ) -> list[HistoricalValue]:
        """Return one feature's values for one entity over time, the newest first.

        These are the values with ``start <= as_of < end``, each with ``as_of``, ``written_at`` and
        its cause: the id of an event or a tick, ``set``, ``computed``, ``served``… A window has a
        value at each contribution to it, and where it falls (``passed``) because time has passed.

        >>> [past.value for past in await store.get_feature_history("total_spend", "ada")]
        [25.0]
        """
        self._runtime.check_present("get_feature_history")
        history = (await self._engine()).value_history
        return (await history.page(feature_name(name), entity_id, start, end, limit)).values

    @verb(
        "GET",
        "/v1/features/{name}/windows",
        scope="read",
        operation="read_windows",
        raises=(UnknownNameError,),
        applies_limits=True,
    )
    async def get_feature_windows(
        self, name: NamedFeature, entity_id: AnyEntityId
    ) -> EntityWindows:
        """Return all windows of a family for one entity at one moment, and their tiles.

        ``name`` is that of the family or of one of its features.

        >>> _ = await store.publish("payment", "ada", {"amount": 25.0})
        >>> _ = await store.drain()
        >>> paid = await store.get_feature_windows("payments", "ada")
        >>> [(each.aggregate, each.window, each.value) for each in paid.values]
        [('sum', '1h', 25.0), ('sum', '7d', 25.0)]
        """
        if current_caller() is not None:
            await self._runtime.check_limits([name], [entity_id])
        return await (await self._engine()).windows.read(feature_name(name), entity_id)

    @with_bar
    async def get_historical_features(
        self,
        frame: Any,
        features: Sequence[FeatureRef],
        *,
        at: str = "timestamp",
        known: bool = False,
        with_as_of: bool = False,
        output: str | Path | None = None,
        exported: str | Path | None = None,
        snapshot: int | None = None,
        progress: OnStep | bool | None = None,
    ) -> Any:
        """Return a table with the values that features had at the time of each row.

        ``frame`` is a pandas, Polars or Arrow table, a DuckDB relation, the path of a Parquet
        file, a query or a list of dicts. It has a column with the ids of each entity, named like
        its id field, and a column ``at`` with times that have a time zone. The result is of the
        same kind, with the same rows in the same order and a column for each feature; None where
        nothing was known. A Parquet file becomes another one, ``output``, whose path is returned;
        a query becomes a DuckDB relation.

        Each value is the last one whose ``as_of`` is not later than the row's time. With
        ``known``, it is the one that a reader was served at that time. A window counts what had
        happened by the row's time or, with ``known``, what had been written by then, and its
        ``as_of`` is the row's time. ``with_as_of`` adds the ``as_of`` of each value as a column
        ``<feature>__as_of``. With ``exported``, stored values
        are read from the files that ``store.history.export`` wrote to that folder; the store is
        not even opened, unless a feature is computed or ``frame`` is a query.

        With ``snapshot``, the id of a snapshot of the lake, such as the one that
        ``store.lake.compact`` returns, stored values are read from it alone: the same rows give
        the same bytes for as long as the snapshot is kept. An ``output`` has it in its metadata.

        ``progress`` is called with the number of rows that are done and of all; with True, a bar
        is shown on a terminal or in a notebook.

        A client sends only the ids and times, which the server limits by ``http.max_upload_bytes``;
        a query and ``exported`` are for the process of a store.

        >>> rows = [{"user_id": "ada", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}]
        >>> await store.get_historical_features(rows, ["total_spend"])
        [{'user_id': 'ada', 'timestamp': ..., 'total_spend': None}]
        """
        self._runtime.check_present("get_historical_features")
        return await self._runtime.tables.read(
            frame,
            features,
            at=at,
            known=known,
            with_as_of=with_as_of,
            output=output,
            exported=exported,
            snapshot=snapshot,
            progress=callback(progress),
        )


class HistoryVerbs(Verbs):
    """``store.history``: import feature tables, export history to files."""

    @with_bar
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
        progress: OnStep | bool | None = None,
    ) -> ImportReport:
        """Add the values of a Parquet or CSV file to history, with the times that they are of.

        The columns, unless they are named: ``id`` is the entity's id field, ``value`` the name of
        the feature or ``value``, ``at`` is ``event_timestamp`` or ``timestamp``, and ``written``
        is ``created`` or ``created_timestamp``; without such a column, values are written now.
        Times without a time zone are refused unless ``time_zone`` is given. Values in CSV are read
        by the type of their feature; an empty text is written as ``""``.

        The rows of a family of windows are what single events contributed; fields of contributions
        have columns of their own. Its windows count them as soon as the import returns.

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
            callback(progress),
            id=id,
            value=value,
            at=at,
            written=written,
            time_zone=time_zone,
        )

    async def import_query(
        self,
        sql: str,
        features: Sequence[FeatureRef],
        *,
        location: str | Path,
        id: str | None = None,
        value: str | None = None,
        at: str | None = None,
        written: str | None = None,
        time_zone: str | None = None,
        progress: OnStep | None = None,
    ) -> ImportReport:
        """Add the rows of a query of a warehouse to history, as `import_file` adds those of a file.

        ``location`` is the URL of a server (``postgres://``, ``snowflake://``, ``bigquery://``), or
        a DuckDB or SQLite file. The rows are first written to a temporary file of this process, so
        that memory is bounded and nothing is imported of a query that fails. A client runs the
        query, and sends that file to its server.

        >>> sql = "SELECT user_id, spent AS total_spend, spent_at AS timestamp FROM totals"
        >>> await store.history.import_query(sql, ["total_spend"], location="shop.duckdb")
        <ImportReport rows=2 values=2 added=2 missing=0>
        """
        from headwater.history.importing import queried_file  # noqa: PLC0415 - loads DuckDB

        async with queried_file(sql, str(location)) as file:
            return await self.import_file(
                file,
                features,
                id=id,
                value=value,
                at=at,
                written=written,
                time_zone=time_zone,
                progress=progress,
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

    async def export_feast(
        self, folder: str | Path, features: Sequence[FeatureRef] | None = None
    ) -> FeastReport:
        """Write stored history as a Feast repository: Parquet files, definitions and settings.

        Without ``features``, all that the store declares. The features of an entity are a view,
        and one with a ttl is a view of its own, so that Feast finds the values that
        `get_historical_features` does. Features that have no stored history are left out and
        named. An earlier export in the folder is replaced, except ``feature_store.yaml``.

        It reads the declarations, so a client cannot call it.

        >>> report = await store.history.export_feast("feast")
        >>> [view.name for view in report.views]
        ['User']
        """
        return await self._runtime.tables.export_feast(Path(folder), features)


class SyncHistoryVerbs(Blocking[HistoryVerbs]):
    """The blocking form of imports and exports."""

    import_file = blocking(HistoryVerbs.import_file)
    import_query = blocking(HistoryVerbs.import_query)
    export = blocking(HistoryVerbs.export)
    export_feast = blocking(HistoryVerbs.export_feast)
