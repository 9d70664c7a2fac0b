"""Client: the verbs of an AsyncClient, each run to its end before it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headwater.client.async_client import AsyncClient, ServerAdmin
from headwater.client.contexts import RecordCalls
from headwater.client.publisher import Publisher
from headwater.core.blocking import Blocking, SyncLoop, blocking
from headwater.store.verbs.admin import SyncAdminVerbs
from headwater.store.verbs.records import SyncRecordVerbs
from headwater.store.verbs.store import SyncVerbs

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
        while (item := self._loop.run(_next(pages))) is not None:
            yield item[0]

    return call


async def _next(items: AsyncIterator[T]) -> tuple[T] | None:
    async for item in items:
        return (item,)
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

    def __exit__(self, *raised: Any) -> None:
        self._loop.run(self._verbs.__aexit__(*raised))


class Client(SyncVerbs[AsyncClient]):
    """An `AsyncClient` for scripts, notebooks and other code without an event loop.

    It takes the same arguments. Its verbs may be called from several threads.

    >>> with Client("http://127.0.0.1:8000", key="...") as client:
    ...     client.get_feature("total_spend", "ada")
    25.0
    """

    records: BlockingRecordCalls
    admin: BlockingServerAdmin

    def __init__(self, url: str | None = None, **options: Any) -> None:
        client = AsyncClient(url, **options)
        super().__init__(client, SyncLoop("Client", "use AsyncClient"))
        client.sync_loop = self._loop
        self.settings = client.settings
        self.url = client.url
        self.records = BlockingRecordCalls(client.records, self._loop)
        self.admin = BlockingServerAdmin(client.admin, self._loop)

    def publisher(self, **options: Any) -> BlockingPublisher:
        """Return a publisher for `with`; the options are those of ``AsyncClient.publisher``.

        >>> with client.publisher() as publisher:
        ...     publisher.publish(ServiceEvent("purchase", "ada", {"amount": 1.0}))
        """
        return BlockingPublisher(self._verbs.publisher(**options), self._loop)

    iter_contexts = iterating(AsyncClient.iter_contexts)
    me = blocking(AsyncClient.me)
    declarations = blocking(AsyncClient.declarations)
    graph = blocking(AsyncClient.graph)

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
