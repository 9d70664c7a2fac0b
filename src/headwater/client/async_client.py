"""AsyncClient: the verbs of a store, over HTTP."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from headwater.client.contexts import ContextCalls, RecordCalls
from headwater.client.events import EventCalls, PublishCalls
from headwater.client.features import FeatureCalls, HistoryCalls
from headwater.client.indexes import IndexCalls
from headwater.client.publisher import FailedEvent, Publisher, PublisherOptions
from headwater.client.server import Request, Server, ServerVerbs
from headwater.core.clock import SystemClock
from headwater.errors import ConfigError
from headwater.model.callers import CallerReport
from headwater.model.declarations import Graph, StoreListing
from headwater.model.health import Alive, Examination, Health, Overview, Readiness, Series
from headwater.model.problems import UNAVAILABLE
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from headwater.store.verbs.admin import AdminVerbs
from headwater.store.verbs.store import StoreVerbs


class ServerAdmin(ServerVerbs, AdminVerbs):
    """``client.admin``: the verbs of ``store.admin``, and those of the server itself."""

    async def is_alive(self) -> bool:
        """Return True if the server answers; raise ServerUnreachableError otherwise.

        >>> await client.admin.is_alive()
        True
        """
        return (await self._server.get(Alive, "/healthz")).status == "ok"

    async def readiness(self) -> Readiness:
        """Return whether the server can serve requests, and the health of each part of its store.

        >>> (await client.admin.readiness()).status
        'ready'
        """
        request = Request("GET", "/readyz", {}, None, is_repeatable=False)
        response = await self._server.send(request, accepted={UNAVAILABLE})
        return self._server.decoded(Readiness, response)

    async def _health(self) -> list[Health]:
        return (await self.readiness()).parts

    async def doctor(self) -> Examination:
        """Examine the installation of the server.

        >>> (await client.admin.doctor()).status
        'ok'
        """
        return await self._server.get(Examination, "/v1/doctor")

    async def overview(self) -> Overview:
        """Return how the store is and what to look at first, with its workers and parts.

        >>> (await client.admin.overview()).title
        'Everything works'
        """
        return await self._server.get(Overview, "/v1/overview")

    async def series(self) -> Series:
        """Return the numbers of the last hour, in steps of ten seconds.

        >>> (await client.admin.series()).step_seconds
        10
        """
        return await self._server.get(Series, "/v1/series")


class AsyncClient(PublishCalls, FeatureCalls, ContextCalls, StoreVerbs):
    """A Headwater server, with the verbs, arguments, results and errors of a ``FeatureStore``.

    Args:
        url: the server, and the path below which its API is mounted. Default: ``client.url`` of
            the settings (``HEADWATER_CLIENT_URL``).
        key: the API key or token. Default: ``client.key``, unless ``client.url`` is another server.
        timeout: seconds that one attempt may take. Default: ``client.timeout``.
        retries: attempts after the first, for requests that can be repeated. Default:
            ``client.retries``.
        settings: the settings, if not those of the environment and of headwater.toml. Their signing
            keys verify records.
        transport: a transport of httpx, such as ``httpx.ASGITransport(create_app(store))``.

    >>> client = AsyncClient("http://127.0.0.1:8000", key="...")
    >>> client
    <AsyncClient http://127.0.0.1:8000>
    """

    records: RecordCalls
    admin: ServerAdmin

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
        retries: int | None = None,
        settings: Settings | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings = settings or load()
        self.clock = SystemClock()
        defaults = self.settings.client
        if not (url or defaults.url):
            raise ConfigError(
                "no server is named; pass its URL, such as http://127.0.0.1:8000, or set "
                "HEADWATER_CLIENT_URL"
            )
        # A key of the settings belongs to their server, if they name one.
        is_other = url and defaults.url and url.rstrip("/") != defaults.url.rstrip("/")
        own_key = "" if is_other else defaults.key
        server = Server(
            url or defaults.url,
            own_key if key is None else key,
            defaults.timeout if timeout is None else timeout,
            defaults.retries if retries is None else retries,
            self.clock,
            transport,
        )
        super().__init__(server)
        self.bus = EventCalls(server)
        self.records = RecordCalls(server, self.settings)
        self.indexes = IndexCalls(server)
        self.history = HistoryCalls(server)
        self.admin = ServerAdmin(server)

    def __repr__(self) -> str:
        return f"<AsyncClient {self.url}>"

    @property
    def url(self) -> str:
        """The URL of the server, without a password."""
        return self._server.url

    def publisher(
        self,
        *,
        max_batch: int = 500,
        max_waiting: int = 10_000,
        linger: float = 0.01,
        retries: int = 10,
        on_error: Callable[[FailedEvent], None] | None = None,
    ) -> Publisher:
        """Return a publisher that sends many events in batches, in the order they were given.

        Args:
            max_batch: the most events of one request.
            max_waiting: the events that may wait for a response; further ones wait for room.
            linger: seconds that events wait for others, to be sent in one request.
            retries: attempts after the first for each batch. The pauses grow to ten seconds.
            on_error: called with each event that was not accepted. Without it, the next ``publish``
                or the end of the block raises `PublishFailedError` with these events.

        >>> async with client.publisher() as publisher:
        ...     for amount in (1.0, 2.0):
        ...         await publisher.publish(ServiceEvent("purchase", "ada", {"amount": amount}))
        """
        options = PublisherOptions(max_batch, max_waiting, linger, retries, on_error)
        return Publisher(self._server, options)

    async def me(self) -> CallerReport:
        """Return the name of the key, what it allows, and the version of the server.

        >>> "read" in (await client.me()).scopes
        True
        """
        return await self._server.get(CallerReport, "/v1/me")

    async def declarations(self) -> StoreListing:
        """Return the entities, features, indexes, retrievers and contexts that the server has.

        >>> [feature.name for feature in (await client.declarations()).features]
        ['total_spend']
        """
        return await self._server.get(StoreListing, "/api/store")

    async def graph(self) -> Graph:
        """Return the declarations, events and sources of the server and their dependencies.

        >>> print((await client.graph()).to_mermaid())
        flowchart LR
            ...
        """
        return (await self.declarations()).graph

    async def close(self) -> None:
        """Close the connections.

        >>> await client.close()
        """
        await self._server.close()
