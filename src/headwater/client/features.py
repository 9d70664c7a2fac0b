"""The verbs of a client for feature values of now and of the past."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headwater.client.server import Server, ServerVerbs, sending
from headwater.declarations.feature_handles import (
    Feature,
    FeatureRef,
    check_sequences,
    feature_name,
)
from headwater.model.features import (
    FeatureRow,
    FeaturesBody,
    HistoricalValue,
    HistoryOfFeature,
    ManyFeatures,
    OneFeature,
)
from headwater.model.history import ExportReport, ImportReport
from headwater.model.values import FeatureValue
from headwater.store.verbs.features import FeatureVerbs, HistoryVerbs

if TYPE_CHECKING:
    from headwater.client.tables import RemoteTables

Id = TypeVar("Id", str, int)

# Servers limit the values of one request.
_VALUES_AT_ONCE = 5_000


class FeatureCalls(ServerVerbs, FeatureVerbs):
    """The part of a client that reads feature values."""

    @sending(FeatureVerbs.get_feature)
    async def get_feature(self, name: FeatureRef, entity_id: str | int) -> Any:
        read = await self._server.get(
            OneFeature, "/v1/features/{}", feature_name(name), entity_id=entity_id
        )
        return _typed(name, read.value)

    @sending(FeatureVerbs.get_features)
    async def get_features(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]:
        rows = await self.get_feature_values(names, entity_ids)
        return {
            entity_id: {name: value.value for name, value in row.items()}
            for entity_id, row in zip(entity_ids, rows, strict=True)
        }

    @sending(FeatureVerbs.get_feature_values)
    async def get_feature_values(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[str | int]
    ) -> list[FeatureRow]:
        check_sequences(names, entity_ids)
        by_name = {feature_name(name): name for name in names}
        size = max(1, _VALUES_AT_ONCE // max(1, len(by_name)))
        rows: list[FeatureRow] = []
        # At least one request, so that the names are checked.
        for start in range(0, max(1, len(entity_ids)), size):
            ids = list(map(str, entity_ids[start : start + size]))
            body = FeaturesBody(entity_ids=ids, features=list(by_name))
            read = await self._server.post(
                ManyFeatures, "/v1/features", body=body, is_repeatable=True
            )
            rows += [
                {
                    name: FeatureValue(_typed(by_name[name], read.value), read.as_of, read.source)
                    for name, read in row.values.items()
                }
                for row in read.rows
            ]
        return rows

    @sending(FeatureVerbs.get_feature_history)
    async def get_feature_history(self, name: FeatureRef, **query: Any) -> list[HistoricalValue]:
        path = "/v1/features/{}/history"
        page = await self._server.get(HistoryOfFeature, path, feature_name(name), **query)
        return [
            msgspec.structs.replace(past, value=_typed(name, past.value)) for past in page.values
        ]

    @sending(FeatureVerbs.get_historical_features)
    async def get_historical_features(self, **given: Any) -> Any:
        return await _tables(self._server).read(**given)


class HistoryCalls(ServerVerbs, HistoryVerbs):
    """``client.history``: import feature tables, export history to files."""

    @sending(HistoryVerbs.import_file)
    async def import_file(self, **given: Any) -> ImportReport:
        return await _tables(self._server).import_file(**given)

    @sending(HistoryVerbs.export)
    async def export(self, folder: str | Path) -> ExportReport:
        return await _tables(self._server).export(folder)


def _tables(server: Server) -> RemoteTables:
    from headwater.client import tables  # noqa: PLC0415 - loads DuckDB

    return tables.RemoteTables(server)


def _typed(name: FeatureRef, value: Any) -> Any:
    """Return a value in its feature's type, if a handle names that."""
    if value is None or not isinstance(name, Feature):
        return value
    return name.definition.codec.decode(msgspec.json.encode(value))
