"""The verbs of a store that read past values."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.history.one_value import HistoricalValue


class PastValueVerbs:
    """The part of ``FeatureStore`` that reads past values."""

    _runtime: Runtime

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
        its cause: the id of an event or a tick, ``set``, ``computed``, ``served``…

        >>> [past.value for past in await store.get_feature_history("total_spend", "ada")]
        [25.0]
        """
        feature = self._runtime.registry.feature(feature_name(name))
        text_id = feature.entity.text_id(entity_id)
        offline = (await self._runtime.open()).backends.offline
        from headwater.history.one_value import values_over_time  # noqa: PLC0415 - loaded with the engine

        return await values_over_time(offline, feature, text_id, start, end, limit)
