"""What a store and its client can do, in groups by subject, and the blocking form of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Self, TypeVar, overload

from headwater.core.blocking import Blocking, SyncLoop, T, blocking
from headwater.core.durations import Duration
from headwater.core.tables import EntityTable
from headwater.declarations.feature_handles import Feature, FeatureRef
from headwater.model.events import PayloadLike, PublishedEvent
from headwater.model.features import FeatureRow, ValueTable
from headwater.model.values import ServiceEvent
from headwater.store.verbs.admin import AdminVerbs, AuditLogVerbs, SyncAdminVerbs
from headwater.store.verbs.backfills import BackfillVerbs, SyncBackfillVerbs
from headwater.store.verbs.catalog import CatalogVerbs, SyncCatalogVerbs
from headwater.store.verbs.contexts import ContextVerbs
from headwater.store.verbs.dead_letters import DeadLetterVerbs, SyncDeadLetterVerbs
from headwater.store.verbs.evaluations import EvaluationVerbs, SyncEvaluationVerbs
from headwater.store.verbs.events import PublishVerbs, SyncEventVerbs
from headwater.store.verbs.features import FeatureVerbs, HistoryVerbs, SyncHistoryVerbs
from headwater.store.verbs.indexes import IndexVerbs, SearchVerbs, SyncIndexVerbs
from headwater.store.verbs.lake import LakeVerbs, SyncLakeVerbs
from headwater.store.verbs.records import SyncRecordVerbs
from headwater.store.verbs.sources import SourceVerbs, SyncSourceVerbs
from headwater.store.verbs.verb import Executor


class StoreVerbs(PublishVerbs, FeatureVerbs, SearchVerbs, ContextVerbs, AuditLogVerbs, ABC):
    """The verbs of a store and of a client, each of which makes its own form of some groups."""

    indexes: IndexVerbs
    history: HistoryVerbs
    admin: AdminVerbs

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.dead_letters = DeadLetterVerbs(executor)
        self.backfills = BackfillVerbs(executor)
        self.catalog = CatalogVerbs(executor)
        self.evaluations = EvaluationVerbs(executor)
        self.lake = LakeVerbs(executor)
        self.sources = SourceVerbs(executor)

    @abstractmethod
    async def close(self) -> None:
        """Close what the verbs have opened."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _by_entity(values: dict[Any, dict[str, Any]], *_: object, **__: object) -> EntityTable:
    return EntityTable(values)


def _with_ids(
    rows: list[FeatureRow], names: object, entity_ids: Sequence[str | int]
) -> list[FeatureRow]:
    return ValueTable(rows, entity_ids)


S_co = TypeVar("S_co", bound=StoreVerbs, covariant=True)


class SyncVerbs(Blocking[S_co]):
    """The blocking form of what store and client share."""

    def __init__(self, store: S_co, loop: SyncLoop) -> None:
        super().__init__(store, loop)
        self.bus = SyncEventVerbs(store.bus, loop)
        self.records = SyncRecordVerbs(store.records, loop)
        self.indexes = SyncIndexVerbs(store.indexes, loop)
        self.history = SyncHistoryVerbs(store.history, loop)
        self.admin = SyncAdminVerbs(store.admin, loop)
        self.dead_letters = SyncDeadLetterVerbs(store.dead_letters, loop)
        self.backfills = SyncBackfillVerbs(store.backfills, loop)
        self.catalog = SyncCatalogVerbs(store.catalog, loop)
        self.evaluations = SyncEvaluationVerbs(store.evaluations, loop)
        self.lake = SyncLakeVerbs(store.lake, loop)
        self.sources = SyncSourceVerbs(store.sources, loop)

    @property
    def verbs(self) -> S_co:
        """The async form of the verbs."""
        return self._verbs

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run the call of a context, a retriever or a feature handle.

        >>> store.sync.run(total_spend.get("ada"))
        25.0
        """
        return self._loop.run(call)

    async def run_apart(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call on the loop of the blocking verbs, for a caller on another loop."""
        return await self._loop.run_apart(call)

    _publish: Callable[..., Any] = blocking(StoreVerbs.publish)

    @overload
    def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
        wait: None = None,
    ) -> ServiceEvent: ...

    @overload
    def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
        wait: Duration,
    ) -> PublishedEvent: ...

    @wraps(StoreVerbs.publish)
    def publish(self, *arguments: Any, **named: Any) -> Any:
        return self._publish(*arguments, **named)

    _get_feature: Callable[..., Any] = blocking(StoreVerbs.get_feature)
    get_features = blocking(StoreVerbs.get_features, tabled=_by_entity)
    get_feature_values = blocking(StoreVerbs.get_feature_values, tabled=_with_ids)
    get_feature_history = blocking(StoreVerbs.get_feature_history)
    get_feature_windows = blocking(StoreVerbs.get_feature_windows)
    get_historical_features = blocking(StoreVerbs.get_historical_features)
    index = blocking(StoreVerbs.index)
    unindex = blocking(StoreVerbs.unindex)
    search = blocking(StoreVerbs.search)
    assemble = blocking(StoreVerbs.assemble)
    record_external = blocking(StoreVerbs.record_external)
    get_context_at = blocking(StoreVerbs.get_context_at)
    list_contexts = blocking(StoreVerbs.list_contexts)
    get_record = blocking(StoreVerbs.get_record)
    replay = blocking(StoreVerbs.replay)
    audit_log = blocking(StoreVerbs.audit_log)

    @overload
    def get_feature(self, name: Feature[T], entity_id: str | int) -> T | None: ...

    @overload
    def get_feature(self, name: str, entity_id: str | int) -> Any: ...

    @wraps(StoreVerbs.get_feature)
    def get_feature(self, name: FeatureRef, entity_id: str | int) -> Any:
        return self._get_feature(name, entity_id)

    def close(self) -> None:
        """Close what the verbs have opened, and end the thread that they ran on."""
        self._loop.run(self._verbs.close())
        self._loop.stop()
