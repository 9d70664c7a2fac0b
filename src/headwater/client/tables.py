"""Tables of a client: their past values, which a server reads, imports and exports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec

from headwater.backends.duckdb.history_export import HistoryExport
from headwater.client.server import Server, counted, local_argument, written
from headwater.core.clock import from_micros
from headwater.core.duckdb_session import headline, identifier, parquet, session
from headwater.declarations.feature_handles import Feature, FeatureRef, feature_name
from headwater.declarations.features import EntityDef
from headwater.errors import ConnectionLostError, InvalidInputError, UnknownNameError
from headwater.errors.hints import Location
from headwater.history.columns import AS_OF, JSON, ResultColumn
from headwater.history.frames.entity_frame import FrameResult, Spine
from headwater.history.frames.files import rows_of
from headwater.history.frames.tables import is_sql, open_frame
from headwater.history.point_in_time import check_columns
from headwater.history.points import check_rows
from headwater.model.catalog import CatalogState
from headwater.model.declarations import StoreListing
from headwater.model.history import (
    CSV,
    PARQUET,
    SNAPSHOT,
    ExportBody,
    ExportReport,
    HistoryCatalog,
    ImportReport,
    SentHistory,
    SentTable,
)
from headwater.model.problems import OnStep

_AT_THE_SERVER = Location("(server)", 0)
_TIME = "TIMESTAMP WITH TIME ZONE"
_POINT_TYPES = {"moment": _TIME}


class RemoteTables:
    """Tables of a caller, whose past values a server reads, and its history in files."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(
        self,
        frame: Any,
        features: Sequence[FeatureRef],
        *,
        output: str | Path | None,
        exported: str | Path | None,
        snapshot: int | None,
        progress: OnStep | None,
        at: str,
        with_as_of: bool,
        known: bool,
    ) -> Any:
        """Return a table with the values that features had at the time of each row."""
        if exported is not None:
            raise local_argument("exported", "get_historical_features")
        if is_sql(frame):
            raise InvalidInputError(
                "a query as the frame runs where the store is; pass its rows, for example as a "
                "DuckDB relation"
            )
        declared = await self._server.get(StoreListing, "/api/store")
        target = None if output is None else Path(output)
        with TemporaryDirectory(prefix="headwater-") as folder, ExitStack() as undo:
            remote = RemoteFrame(frame, target, declared, features, at, Path(folder))
            undo.callback(remote.frame.discard)
            points = await asyncio.to_thread(remote.write_points, with_as_of=with_as_of)
            with remote.answer.open("wb") as opened:
                sent = await self._server.upload(
                    SentTable,
                    "/v1/history/read",
                    file=points,
                    media_type=PARQUET,
                    on_line=written(opened, counted(progress)),
                    features=",".join(map(feature_name, features)),
                    at=at,
                    known=known,
                    with_as_of=with_as_of,
                    **({} if snapshot is None else {"snapshot": snapshot}),
                )
            self._check_complete(remote.answer, sent.bytes, "table")
            result = await asyncio.to_thread(remote.attach, frozenset(sent.json_columns), snapshot)
            undo.pop_all()
            return result

    async def import_file(
        self,
        file: str | Path,
        features: Sequence[FeatureRef],
        progress: OnStep | None,
        **columns: str | None,
    ) -> ImportReport:
        """Send a file whose values the server adds to history."""
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

    async def export(self, folder: str | Path) -> ExportReport:
        """Write the rows of history that a folder does not have yet to files in it."""
        now = (await self._server.get(HistoryCatalog, "/v1/history/catalog")).now
        return await HistoryExport(self, self.catalog, Path(folder), now).run()

    async def catalog(self) -> CatalogState:
        """Return the versions of all features."""
        return (await self._server.get(HistoryCatalog, "/v1/history/catalog")).catalog

    async def export_history(self, file: Path, *, after: int) -> int:
        """Write the rows with a sequence number above ``after`` to a file; return the last."""
        body, unfinished = ExportBody(after), file.with_suffix(".unfinished")
        with unfinished.open("wb") as opened:
            sent = await self._server.follow(
                SentHistory, "/v1/history/export", body=body, on_line=written(opened)
            )
        self._check_complete(unfinished, sent.bytes, "history")
        if sent.upto > after:
            unfinished.rename(file)
        else:
            unfinished.unlink()
        return sent.upto

    def _check_complete(self, file: Path, size: int, content: str) -> None:
        if file.stat().st_size != size:
            raise ConnectionLostError(self._server.url, f"parts of the {content} are missing")


class RemoteFrame:
    """A caller's table; the ids and times and the answer are kept in a folder."""

    def __init__(
        self,
        frame: Any,
        output: Path | None,
        declared: StoreListing,
        features: Sequence[FeatureRef],
        at: str,
        folder: Path,
    ) -> None:
        self._features = {feature_name(feature): feature for feature in features}
        self._spine = Spine(_entities(declared, list(self._features)), at)
        self.frame = open_frame(frame, output)
        self.answer = folder / "answer.parquet"
        """The file for the answer of the server."""

    def write_points(self, *, with_as_of: bool) -> Path:
        """Check the table; return a file with its ids and times."""
        names = list(self._features)
        added = [*names, *(f"{name}{AS_OF}" for name in names if with_as_of)]
        points = self.answer.with_name("points.parquet")
        check_columns(self.frame, self._spine, added)
        selected = ", ".join(
            f"CAST({column} AS {_POINT_TYPES.get(column, 'VARCHAR')}) AS {identifier(name)}"
            for column, name in self._spine.columns.items()
        )
        with session(points.parent) as duck:
            try:
                self.frame.load(duck, self._spine)
                check_rows(duck, self._spine, self.frame.remedies)
                duck.write(f"SELECT {selected} FROM frame ORDER BY row", points)
            except duckdb.Error as error:
                raise InvalidInputError(f"the frame cannot be read: {headline(error)}") from error
        return points

    def attach(self, json_columns: Collection[str], snapshot: int | None) -> Any:
        """Return the caller's table with the columns of the answer."""
        own = set(self._spine.columns.values())
        with session(self.answer.parent) as duck:
            described = duck.run(f"DESCRIBE {parquet([self.answer])}").fetchall()
            columns = [
                _column(name, kind, self._features.get(name), is_json=name in json_columns)
                for name, kind, *_ in described
                if name not in own
            ]
            metadata = {} if snapshot is None else {SNAPSHOT: str(snapshot)}
            return self.frame.attach(duck, FrameResult([self.answer], columns, metadata))


def _entities(declared: StoreListing, names: Sequence[str]) -> list[EntityDef]:
    """Return the entities of features, each once."""
    features = {feature.name: feature.entity for feature in declared.features}
    entities = {entity.name: entity for entity in declared.entities}
    for name in names:
        if name not in features:
            raise UnknownNameError("feature", name, features)
    listed = [entities[entity] for entity in dict.fromkeys(features[name] for name in names)]
    return [
        EntityDef(used.name, used.id_field, int if used.id_type == "int" else str, _AT_THE_SERVER)
        for used in listed
    ]


def _column(name: str, kind: str, feature: FeatureRef | None, *, is_json: bool) -> ResultColumn:
    """Return a column of the answer; its values are in the type of a feature's handle."""
    value, type_ = f"e0.{identifier(name)}", JSON if is_json else kind
    if kind == _TIME:
        plain = f"epoch_us({value})"
        return ResultColumn(name, "TIMESTAMPTZ", value, plain, _present(from_micros))
    if isinstance(feature, Feature) and feature.definition.codec.kind == "json":
        decode = feature.definition.codec.decode
        encode = str.encode if is_json else msgspec.json.encode
        return ResultColumn(name, type_, value, value, _present(lambda each: decode(encode(each))))
    to_python = _present(msgspec.json.decode) if is_json else None
    return ResultColumn(name, type_, value, value, to_python)


def _present(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return partial(_converted, convert)


def _converted(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)
