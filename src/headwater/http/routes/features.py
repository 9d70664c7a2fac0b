"""Routes that read feature values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.errors.hints import quoted
from headwater.features.call_scope import real_clock
from headwater.history.one_value import MOST_CAUSES, MOST_ROWS
from headwater.http.routing.problems import problem_of
from headwater.http.routing.request_errors import TooManyValuesError
from headwater.http.routing.route import Route
from headwater.model.features import (
    EntityRow,
    EntityValues,
    FeatureRow,
    FeaturesBody,
    HistoryOfFeature,
    ManyFeatures,
    OneFeature,
    Value,
)
from headwater.model.kinds import EntityId, EntityName, FeatureName, Moment
from headwater.model.values import FeatureValue
from headwater.store.entity_reads import read_entity
from headwater.store.feature_store import FeatureStore

# After so many values, a large request yields to others, and it stops if its client has gone.
_VALUES_AT_ONCE = 500

Rows = Annotated[
    int, msgspec.Meta(ge=1, le=MOST_ROWS, description="How many at most.", examples=[20])
]
WithEvents = Annotated[
    bool,
    msgspec.Meta(
        description=f"Add the events that caused the values; ``limit`` is {MOST_CAUSES} at most.",
        examples=[True],
    ),
]


class Features:
    """Reads feature values."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        # No route runs inside of a function, whose time may be another.
        self._clock = real_clock(store.clock)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/features/{name}", "read", self.read_feature, applies_limits=True),
            Route(
                "GET", "/v1/features/{name}/history", "read", self.read_history, applies_limits=True
            ),
            Route(
                "GET",
                "/v1/entities/{entity}/{entity_id}",
                "read",
                self.read_entity,
                applies_limits=True,
            ),
            Route("POST", "/v1/features", "read", self.read_features, applies_limits=True),
            Route("POST", "/api/features/get", "read", self.get_features, applies_limits=True),
        ]

    async def read_feature(self, name: FeatureName, entity_id: EntityId) -> OneFeature:
        """Read one feature of one entity."""
        (row,) = await self._store.get_feature_values((name,), (entity_id,))
        value = row[name]
        age = value.age_ms(self._clock.now())
        return OneFeature(name, entity_id, value.value, value.as_of, age, value.source)

    async def read_history(
        self,
        name: FeatureName,
        entity_id: EntityId,
        start: Moment | None = None,
        end: Moment | None = None,
        limit: Rows = 100,
        *,
        events: WithEvents = False,
    ) -> HistoryOfFeature:
        """Read one feature of one entity over time, from ``start`` until before ``end``."""
        history = (await runtime_of(self._store).open()).value_history
        values, next_end = await history.page(name, entity_id, start, end, limit, events=events)
        return HistoryOfFeature(name, entity_id, values, next_end)

    async def read_entity(self, entity: EntityName, entity_id: EntityId) -> EntityValues:
        """Read all features of one entity, with age and freshness.

        A feature that fails has a ``problem`` in place of a value, and does not fail the others.
        """
        return await read_entity(runtime_of(self._store), entity, entity_id, problem_of)

    async def read_features(self, body: FeaturesBody) -> ManyFeatures:
        """Read many features of many entities."""
        registry = runtime_of(self._store).registry
        entity = registry.one_entity(body.features)
        if body.entity is not None and registry.entity(body.entity) is not entity:
            raise InvalidInputError(
                f"the features belong to the entity {entity.name!r}, not to {quoted(body.entity)}"
            )
        # Sorted, so that requests for the same features share one read plan.
        names = tuple(sorted(set(body.features)))
        limit = self._store.settings.http.max_values
        if len(names) * len(body.entity_ids) > limit:
            raise TooManyValuesError(len(body.entity_ids), len(names), limit)
        order, now = list(dict.fromkeys(body.features)), self._clock.now
        rows = {
            entity_id: EntityRow(entity_id, {name: _value(row[name], now()) for name in order})
            async for entity_id, row in self._rows(names, list(dict.fromkeys(body.entity_ids)))
        }
        return ManyFeatures(entity.name, [rows[entity_id] for entity_id in body.entity_ids])

    async def get_features(self, body: FeaturesBody) -> ManyFeatures:
        """Read many features of many entities, for the UI."""
        return await self.read_features(body)

    async def _rows(
        self, names: tuple[str, ...], entity_ids: Sequence[str]
    ) -> AsyncIterator[tuple[str, FeatureRow]]:
        at_once = max(1, _VALUES_AT_ONCE // len(names))
        for start in range(0, len(entity_ids), at_once):
            if start:
                await asyncio.sleep(0)
            part = entity_ids[start : start + at_once]
            for pair in zip(part, await self._store.get_feature_values(names, part), strict=True):
                yield pair


def _value(value: FeatureValue, now: datetime) -> Value:
    return Value(value.value, value.as_of, value.age_ms(now), value.source)
