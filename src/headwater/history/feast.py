"""Feast repositories: the history of stored features as Parquet files, and their definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from headwater.core.clock import to_micros
from headwater.core.duckdb_session import glob_literal, identifier, parquet, session
from headwater.core.interruptible import in_thread
from headwater.core.sql_literals import texts
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.errors import InvalidInputError
from headwater.history.columns import column_type, is_of_its_computation
from headwater.history.frames.files import FileFrame
from headwater.history.point_in_time import HistoryRequest, PastSources, read_history
from headwater.model.history import FeastReport, FeastView
from headwater.ports import OfflineStore

DEFINITIONS = "definitions.py"
_MARK = (
    "# Written by `headwater history export-feast`, which replaces it; write your own next to it.\n"
)
_IMPORTS = """
import datetime
from pathlib import Path

from feast import Entity, FeatureView, Field, FileSource, ValueType
from feast.types import Array, Bool, Float64, Int64, String, UnixTimestamp

HISTORY = Path(__file__).parent / "history"
"""
# Feast's default store leaves out rows of a frame for which a view has values of other times only.
_SETTINGS = """project: headwater
provider: local
registry: data/registry.db
offline_store:
  type: duckdb
online_store:
  type: sqlite
  path: data/online_store.db
entity_key_serialization_version: 3
"""
_AT, _CREATED, _READ_AT = "event_timestamp", "created_timestamp", "headwater.at"
_TYPES = {
    "BIGINT": "Int64",
    "DOUBLE": "Float64",
    "BOOLEAN": "Bool",
    "VARCHAR": "String",
    "TIMESTAMPTZ": "UnixTimestamp",
}
# Of the values from before a pruning only those stay that count at its moment, and are read then.
_MOMENTS = f"""
SELECT {{id}}, max(moment) AS {_AT}, max(written_at) AS {_CREATED},
       greatest(moment, make_timestamptz(CAST({{earliest}} AS BIGINT))) AS "{_READ_AT}"
FROM (
    SELECT entity_id, written_at,
           CASE WHEN feature IN ({{computed}}) THEN written_at ELSE as_of END AS moment
    FROM {{rows}}
    WHERE entity = {{entity}} AND feature IN ({{series}})
)
GROUP BY entity_id, "{_READ_AT}"
"""
_NO_ROWS = """(
    SELECT '' AS feature, '' AS entity, '' AS entity_id, now() AS as_of, now() AS written_at
    WHERE false
)"""


class _View(msgspec.Struct, frozen=True):
    """A feature view: the features of an entity without a ttl, or one that has a ttl.

    A row has the values of all features of the view, and its ttl counts from the last change of
    any of them.
    """

    name: str
    features: Sequence[FeatureDef]

    @property
    def entity(self) -> EntityDef:
        return self.features[0].entity

    def moments(self, rows: Path, earliest: datetime | None) -> str:
        """Return the SQL of the moments at which a value of the view changed."""
        entity = self.entity
        series = {series: f for f in self.features for series, _ in f.chain}
        computed = [name for name, feature in series.items() if is_of_its_computation(feature)]
        type_ = "BIGINT" if entity.id_type is int else "VARCHAR"
        return _MOMENTS.format(
            id=f"CAST(entity_id AS {type_}) AS {identifier(entity.id_field)}",
            earliest="NULL" if earliest is None else to_micros(earliest),
            computed=texts(computed or [""]),
            rows=f"read_parquet({glob_literal(rows)})" if rows.exists() else _NO_ROWS,
            entity=texts([entity.name]),
            series=texts(list(series)),
        )

    def rows(self, answer: Path) -> str:
        """Return the SQL of the rows in Feast's types; JSON and dates are texts."""
        id_field = identifier(self.entity.id_field)
        values = (
            f"CAST({identifier(feature.name)} AS {_type(feature)}) AS {identifier(feature.name)}"
            for feature in self.features
        )
        columns = ", ".join((id_field, _AT, _CREATED, *values))
        return f"SELECT {columns} FROM ({parquet([answer])}) ORDER BY {id_field}, {_AT}"

    @property
    def definition(self) -> str:
        """The Python of the view and its source."""
        entity, ttl = self.entity, self.features[0].ttl
        fields = "".join(
            f"\n        Field(name={_text(feature.name)}, dtype={_feast_type(_type(feature))},"
            f" description={_text(feature.description)}),"
            for feature in self.features
        )
        return f"""
{self.name}_view = FeatureView(
    name={_text(self.name)},
    entities=[{entity.name}_entity],
    ttl={ttl!r},
    schema=[{fields}
    ],
    source=FileSource(
        path=str(HISTORY / {_text(f"{self.name}.parquet")}),
        timestamp_field={_text(_AT)},
        created_timestamp_column={_text(_CREATED)},
    ),
)
"""


class FeastExport:
    """An export into the folder of a Feast repository, which replaces an earlier one."""

    def __init__(
        self, folder: Path, features: Sequence[FeatureDef], past: PastSources, offline: OfflineStore
    ) -> None:
        self._folder = folder
        self._features = features
        self._past = past
        self._offline = offline

    async def run(self) -> FeastReport:
        """Write definitions and files, and remove the files of views that are no longer there."""
        left_out = {each.name: reason for each in self._features if (reason := _reason(each))}
        views = _views([each for each in self._features if each.name not in left_out])
        history = self._folder / "history"
        files = [history / f"{view.name}.parquet" for view in views]
        self._check_folder()
        history.mkdir(parents=True, exist_ok=True)
        # They mark the folder as ours, also if this is interrupted.
        entities = {view.entity.name: view.entity for view in views}.values()
        parts = (*map(_entity, entities), *(view.definition for view in views))
        (self._folder / DEFINITIONS).write_text(_MARK + _IMPORTS + "".join(parts), "utf-8")
        settings = self._folder / "feature_store.yaml"
        if not settings.exists():
            settings.write_text(_SETTINGS, "utf-8")
        with TemporaryDirectory(prefix="headwater-", dir=self._past.folder) as scratch:
            rows = Path(scratch, "rows.parquet")
            await self._offline.export_history(rows, after=0)
            counts = [
                await self._write(view, rows, file) for view, file in zip(views, files, strict=True)
            ]
        for file in {*history.glob("*.parquet"), *history.glob("*.unfinished")} - {*files}:
            file.unlink()
        return FeastReport(
            [
                FeastView(view.name, view.entity.name, [f.name for f in view.features], count)
                for view, count in zip(views, counts, strict=True)
            ],
            left_out,
        )

    def _check_folder(self) -> None:
        """Raise InvalidInputError if a folder has files and no earlier export."""
        definitions = self._folder / DEFINITIONS
        is_ours = definitions.is_file() and definitions.read_text("utf-8").startswith(_MARK)
        if not is_ours and self._folder.exists() and any(self._folder.iterdir()):
            raise InvalidInputError(
                f"{self._folder} has files that are not of an earlier export; name a new or empty "
                "folder"
            )

    async def _write(self, view: _View, rows: Path, file: Path) -> int:
        """Write the rows of a view; return their number."""
        points, answer = rows.with_name("points.parquet"), rows.with_name("answer.parquet")
        await in_thread(
            _write, view.moments(rows, await self._past.earliest()), points, rows.parent
        )
        request = HistoryRequest(features=view.features, at=_READ_AT)
        await read_history(FileFrame(points, answer), request, self._past)
        return await in_thread(_write, view.rows(answer), file, rows.parent)


def _write(rows: str, file: Path, scratch: Path) -> int:
    with session(scratch) as duck:
        return duck.write_whole(rows, file)


def _reason(feature: FeatureDef) -> str | None:
    """Return why a feature has no stored history that Feast could read, if it has none."""
    columns = (feature.entity.id_field, _AT, _CREATED)
    if feature.codec.kind == "none":
        return "it never has a value"
    if feature.windows is not None or feature.window is not None:
        return "windows change as time passes, and only what events contributed is stored"
    if feature.template is not None or feature.derived or not feature.has_history:
        return "it is computed at every read, and not stored"
    if feature.name.casefold() in map(str.casefold, columns):
        return "the files have another column of its name"
    return None


def _views(features: Sequence[FeatureDef]) -> list[_View]:
    by_key: dict[tuple[str, ...], list[FeatureDef]] = {}
    for feature in features:
        key = (feature.entity.name, *([feature.name] * (feature.ttl is not None)))
        by_key.setdefault(key, []).append(feature)
    views = {"_".join(key).casefold(): _View("_".join(key), some) for key, some in by_key.items()}
    if len(views) < len(by_key):
        raise InvalidInputError(
            f"two feature views would have one name, of {sorted(views)}; export a part of the "
            "features, by their names"
        )
    return list(views.values())


def _entity(entity: EntityDef) -> str:
    """Return the Python of an entity."""
    return f"""
{entity.name}_entity = Entity(
    name={_text(entity.name)},
    join_keys=[{_text(entity.id_field)}],
    value_type=ValueType.{"INT64" if entity.id_type is int else "STRING"},
    description={_text(entity.description)},
)
"""


def _type(feature: FeatureDef) -> str:
    """Return the DuckDB type of a column: one that Feast has."""
    type_ = column_type(feature.codec)
    return type_ if type_.rstrip("[]") in _TYPES else "VARCHAR"


def _feast_type(type_: str) -> str:
    return f"Array({_feast_type(type_[:-2])})" if type_.endswith("[]") else _TYPES[type_]


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
