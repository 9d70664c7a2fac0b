"""The verbs of a client that read feature values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from headwater.client.server import Server
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
from headwater.model.values import FeatureValue

Id = TypeVar("Id", str, int)

# Servers limit the values of one request.
_VALUES_AT_ONCE = 5_000


class FeatureReadCalls:
    """The part of a client that reads feature values.

    Values are JSON; those of a feature that is given by its handle are in its annotated type.
    """

    _server: Server

    async def get_feature(self, name: FeatureRef, entity_id: str | int) -> Any:
        """Return one feature's value for one entity; None if there is none.

        >>> await client.get_feature("total_spend", "ada")
        25.0
        """
        found = await self._server.get(
            OneFeature, "/v1/features/{}", feature_name(name), entity_id=entity_id
        )
        return _typed(name, found.value)

    async def get_features(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]:
        """Return many features of many entities, by entity id, then by name.

        >>> await client.get_features(["total_spend"], ["ada", "bob"])
        {'ada': {'total_spend': 25.0}, 'bob': {'total_spend': None}}
        """
        rows = await self.get_feature_values(names, entity_ids)
        return {
            entity_id: {name: value.value for name, value in row.items()}
            for entity_id, row in zip(entity_ids, rows, strict=True)
        }

    async def get_feature_values(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[str | int]
    ) -> list[FeatureRow]:
        """Return values with age and source, one row per entity in the order of ``entity_ids``.

        >>> (row,) = await client.get_feature_values(["total_spend"], ["ada"])
        >>> row["total_spend"].source
        'online'
        """
        check_sequences(names, entity_ids)
        by_name = {feature_name(name): name for name in names}
        size = max(1, _VALUES_AT_ONCE // max(1, len(by_name)))
        rows: list[FeatureRow] = []
        # At least one request, so that the names are checked.
        for start in range(0, max(1, len(entity_ids)), size):
            ids = list(map(str, entity_ids[start : start + size]))
            body = FeaturesBody(entity_ids=ids, features=list(by_name))
            found = await self._server.ask(ManyFeatures, "/v1/features", body=body)
            rows += [
                {
                    name: FeatureValue(_typed(by_name[name], each.value), each.as_of, each.source)
                    for name, each in row.values.items()
                }
                for row in found.rows
            ]
        return rows

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

        >>> [past.value for past in await client.get_feature_history("total_spend", "ada")]
        [25.0]
        """
        found = await self._server.get(
            HistoryOfFeature,
            "/v1/features/{}/history",
            feature_name(name),
            entity_id=entity_id,
            start=start,
            end=end,
            limit=limit,
        )
        return [
            msgspec.structs.replace(each, value=_typed(name, each.value)) for each in found.values
        ]


def _typed(name: FeatureRef, value: Any) -> Any:
    """Return a value in its feature's type, if a handle names that."""
    if value is None or not isinstance(name, Feature):
        return value
    return name.definition.codec.decode(msgspec.json.encode(value))
