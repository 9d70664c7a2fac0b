"""The verbs of a store that read past values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.features.call_scope import track_source
from headwater.features.caller_limits import limited_caller
from headwater.model.progress import OnStep
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.declarations.features import FeatureDef
    from headwater.history.one_value import ValuePage
    from headwater.model.features import HistoricalValue


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
        offline = (await self._runtime.open()).backends.offline
        feature, text_id = _checked(self._runtime, name, entity_id)
        from headwater.history.one_value import values_over_time  # noqa: PLC0415 - loaded with the engine

        return await values_over_time(offline, feature, text_id, start, end, limit)

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
        progress: OnStep | None = None,
    ) -> Any:
        """Return a table with the values that features had at the time of each row.

        ``frame`` is a pandas, Polars or Arrow table, a DuckDB relation, the path of a Parquet
        file, a query or a list of dicts. It has a column with the ids of each entity, named like
        its id field, and a column ``at`` with times that have a time zone. The result is of the
        same kind, with the same rows in the same order and a column for each feature; None where
        nothing was known. A Parquet file becomes another one, ``output``, whose path is returned;
        a query becomes a DuckDB relation.

        Each value is the last one whose ``as_of`` is not later than the row's time. With
        ``known``, it is the one that a reader was served at that time. ``with_as_of`` adds the
        ``as_of`` of each value as a column ``<feature>__as_of``. With ``exported``, stored values
        are read from the files that ``store.history.export`` wrote to that folder; the store is
        not even opened, unless a feature is computed or ``frame`` is a query.

        >>> rows = [{"user_id": "ada", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}]
        >>> await store.get_historical_features(rows, ["total_spend"])
        [{'user_id': 'ada', 'timestamp': ..., 'total_spend': None}]
        """
        limited = limited_caller()
        if limited is not None:
            raise limited.refuse("get_historical_features")
        track_source("other", "historical features")
        from headwater.store.frame_reads import FrameOptions, read_frame  # noqa: PLC0415 - loaded with the engine

        options = FrameOptions(
            at=at,
            known=known,
            with_as_of=with_as_of,
            output=output,
            exported=exported,
            progress=progress,
        )
        return await read_frame(self._runtime, frame, features, options)


async def page_of_history(
    runtime: Runtime,
    name: FeatureRef,
    entity_id: str | int,
    start: datetime | None,
    end: datetime | None,
    limit: int,
    *,
    events: bool,
) -> ValuePage:
    """Return a page of ``get_feature_history``, perhaps with the events behind the values."""
    offline = (await runtime.open()).backends.offline
    feature, text_id = _checked(runtime, name, entity_id)
    declared = runtime.registry.features.values()
    types = {each for feature in declared for each in feature.triggers} if events else ()
    from headwater.history.one_value import page_of_values  # noqa: PLC0415 - loaded with the engine

    return await page_of_values(offline, feature, text_id, start, end, limit, types)


def _checked(runtime: Runtime, name: FeatureRef, entity_id: str | int) -> tuple[FeatureDef, str]:
    """Return a feature and an id whose history the caller may read, and track the read."""
    feature = runtime.registry.feature(feature_name(name))
    feature.check_stored()
    text_id = feature.entity.text_id(entity_id)
    limited = limited_caller()
    if limited is not None:
        limited.check_entity(feature.entity.name, text_id)
    track_source("feature", feature.entity.name, feature.name, text_id)
    if not feature.stored:
        # History does not say what a value was computed from.
        track_source("other", "past values of a computed feature")
    return feature, text_id
