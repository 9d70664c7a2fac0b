"""Client: the verbs of an AsyncClient, each run to its end before it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headwater.client.async_client import AsyncClient, ServerAdmin
from headwater.client.contexts import RecordCalls
from headwater.client.publisher import Publisher
from headwater.core.blocking import Blocking, SyncLoop, blocking
from headwater.store.verbs.admin import SyncAdminVerbs
from headwater.store.verbs.backfills import SyncBackfillVerbs
from headwater.store.verbs.catalog import SyncCatalogVerbs
from headwater.store.verbs.dead_letters import SyncDeadLetterVerbs
from headwater.store.verbs.events import SyncEventVerbs
from headwater.store.verbs.history import SyncHistoryVerbs
from headwater.store.verbs.indexes import SyncIndexVerbs
from headwater.store.verbs.records import SyncRecordVerbs

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")


def iterating(
    verb: Callable[Concatenate[V, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[V], P], Iterator[T]]:
    """Return the blocking form of a verb that yields, with the same signature and docstring."""

    @wraps(verb)
    def call(self: Blocking[V], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        pages = verb(self._verbs, *args, **kwargs)
        while (found := self._loop.run(_next(pages))) is not None:
            yield found[0]

    return call


async def _next(found: AsyncIterator[T]) -> tuple[T] | None:
    async for each in found:
        return (each,)
    return None


class BlockingRecordCalls(SyncRecordVerbs[RecordCalls]):
    """``client.records``."""

    iter = iterating(RecordCalls.iter)


class BlockingServerAdmin(SyncAdminVerbs[ServerAdmin]):
    """``client.admin``."""

    is_alive = blocking(ServerAdmin.is_alive)
    readiness = blocking(ServerAdmin.readiness)
    overview = blocking(ServerAdmin.overview)
    series = blocking(ServerAdmin.series)
    doctor = blocking(ServerAdmin.doctor)


class BlockingPublisher(Blocking[Publisher]):
    """The publisher of a `Client`."""

    publish = blocking(Publisher.publish)
    flush = blocking(Publisher.flush)

    def __enter__(self) -> Self:
        self._loop.run(self._verbs.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._verbs.__aexit__(kind, error, trace))


class Client(Blocking[AsyncClient]):
    """An `AsyncClient` for scripts, notebooks and other code without an event loop.

    It takes the same arguments. Its verbs may be called from several threads.

    >>> with Client("http://127.0.0.1:8000", key="...") as client:
    ...     client.get_feature("total_spend", "ada")
    25.0
    """

    def __init__(self, url: str | None = None, **options: Any) -> None:
        loop = SyncLoop("Client", "use AsyncClient")
        client = AsyncClient(url, **options)
        super().__init__(client, loop)
        self.settings = client.settings
        self.url = client.url
        self.bus = SyncEventVerbs(client.bus, loop)
        self.records = BlockingRecordCalls(client.records, loop)
        self.indexes = SyncIndexVerbs(client.indexes, loop)
        self.dead_letters = SyncDeadLetterVerbs(client.dead_letters, loop)
        self.history = SyncHistoryVerbs(client.history, loop)
        self.catalog = SyncCatalogVerbs(client.catalog, loop)
        self.backfills = SyncBackfillVerbs(client.backfills, loop)
        self.admin = BlockingServerAdmin(client.admin, loop)

    def publisher(self, **options: Any) -> BlockingPublisher:
        """Return a publisher for `with`; the options are those of ``AsyncClient.publisher``.

        >>> with client.publisher() as publisher:
        ...     publisher.publish(ServiceEvent("purchase", "ada", {"amount": 1.0}))
        """
        return BlockingPublisher(self._verbs.publisher(**options), self._loop)

    publish = blocking(AsyncClient.publish)
    get_feature = blocking(AsyncClient.get_feature)
    get_features = blocking(AsyncClient.get_features)
    get_feature_values = blocking(AsyncClient.get_feature_values)
    get_feature_history = blocking(AsyncClient.get_feature_history)
    get_historical_features = blocking(AsyncClient.get_historical_features)
    assemble = blocking(AsyncClient.assemble)
    record_external = blocking(AsyncClient.record_external)
    get_context_at = blocking(AsyncClient.get_context_at)
    list_contexts = blocking(AsyncClient.list_contexts)
    iter_contexts = iterating(AsyncClient.iter_contexts)
    get_record = blocking(AsyncClient.get_record)
    replay = blocking(AsyncClient.replay)
    index = blocking(AsyncClient.index)
    unindex = blocking(AsyncClient.unindex)
    search = blocking(AsyncClient.search)
    audit_log = blocking(AsyncClient.audit_log)
    me = blocking(AsyncClient.me)
    declarations = blocking(AsyncClient.declarations)
    graph = blocking(AsyncClient.graph)

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    def close(self) -> None:
        """Close the connections and end the thread that the verbs ran on."""
        self._loop.run(self._verbs.close())
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
