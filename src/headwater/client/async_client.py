"""AsyncClient: the verbs of a store, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import msgspec

from headwater.client.contexts import ContextCalls, RecordCalls
from headwater.client.events import EventCalls, PublishCalls
from headwater.client.publisher import FailedEvent, Publisher, PublisherOptions
from headwater.client.server import Request, Server, ServerVerbs, sending
from headwater.core.clock import SystemClock
from headwater.core.codec import encode_custom
from headwater.declarations.feature_handles import (
    Feature,
    FeatureRef,
    check_sequences,
    feature_name,
)
from headwater.declarations.indexes import IndexRef, index_name
from headwater.errors import ConfigError, InvalidInputError
from headwater.model.callers import CallerReport
from headwater.model.declarations import Graph, StoreListing
from headwater.model.features import (
    FeatureRow,
    FeaturesBody,
    HistoricalValue,
    HistoryOfFeature,
    ManyFeatures,
    OneFeature,
)
from headwater.model.health import Alive, Examination, Health, Overview, Readiness, Series
from headwater.model.history import ExportReport, FeastReport, ImportReport
from headwater.model.indexes import (
    Document,
    Documents,
    DocumentsBody,
    LoadReport,
    NewDocument,
    OnLoaded,
    RetainedIndex,
    batches,
)
from headwater.model.problems import NDJSON, UNAVAILABLE
from headwater.model.values import FeatureValue
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from headwater.store.verbs.admin import AdminVerbs
from headwater.store.verbs.features import FeatureVerbs, HistoryVerbs
from headwater.store.verbs.indexes import IndexVerbs
from headwater.store.verbs.store import StoreVerbs

if TYPE_CHECKING:
    from headwater.client.tables import RemoteTables

Id = TypeVar("Id", str, int)

# Servers limit the values of one request.
_VALUES_AT_ONCE = 5_000
# Half of the default limit of servers.
_BYTES_AT_ONCE = 500_000


class ReadCalls(ServerVerbs, FeatureVerbs):
    """The part of a client that reads feature values."""

    async def _get_feature(self, name: FeatureRef, entity_id: str | int) -> Any:
        read = await self._server.get(
            OneFeature, "/v1/features/{}", feature_name(name), entity_id=entity_id
        )
        return _typed(name, read.value)

    if not TYPE_CHECKING:  # its overloads are those of the verb
        get_feature = sending(FeatureVerbs.get_feature)(_get_feature)

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

    @sending(HistoryVerbs.export_feast)
    async def export_feast(self, **_: Any) -> FeastReport:
        raise InvalidInputError(
            "export_feast needs the declared features, which a client has not; call it of a "
            "FeatureStore whose settings name the same servers"
        )


def _tables(server: Server) -> RemoteTables:
    from headwater.client import tables  # noqa: PLC0415 - loads DuckDB

    return tables.RemoteTables(server)


def _typed(name: FeatureRef, value: Any) -> Any:
    """Return a value in its feature's type, if a handle names that."""
    if value is None or not isinstance(name, Feature):
        return value
    return name.definition.codec.decode(msgspec.json.encode(value))


class IndexCalls(ServerVerbs, IndexVerbs):
    """``client.indexes``: load, describe, rebuild and drop indexes."""

    @sending(IndexVerbs.load)
    async def load(
        self, index: IndexRef, documents: Documents, progress: OnLoaded | None
    ) -> LoadReport:
        name = index_name(index)
        total = await self._load(name, [])  # checks the name
        async for batch in batches(documents):
            for part in _requests([_new_document(each) for each in batch]):
                total = total.plus(await self._load(name, part))
                if progress is not None:
                    progress(total)
        return total

    async def _load(self, index: str, documents: Sequence[NewDocument]) -> LoadReport:
        path, body = "/v1/indexes/{}/documents", DocumentsBody(documents)
        return await self._server.follow(LoadReport, path, index, body=body, is_repeatable=True)

    @sending(IndexVerbs.retain)
    async def retain(self, index: IndexRef, document_ids: Collection[str | int]) -> int:
        with NamedTemporaryFile(prefix="headwater-", suffix=".ndjson") as file:
            for document_id in document_ids:
                file.write(msgspec.json.encode(str(document_id)) + b"\n")
            file.flush()
            kept = await self._server.upload(
                RetainedIndex,
                "/v1/indexes/{}/retain",
                index_name(index),
                file=Path(file.name),
                media_type=NDJSON,
            )
        return kept.removed


def _new_document(document: Document) -> NewDocument:
    return NewDocument(id=str(document.id), text=document.text, metadata=dict(document.metadata))


def _requests(documents: Sequence[NewDocument]) -> Iterator[Sequence[NewDocument]]:
    """Yield documents in parts that servers accept; one that is larger is sent alone."""
    middle = len(documents) // 2
    if middle and sum(map(_size, documents)) > _BYTES_AT_ONCE:
        yield from _requests(documents[:middle])
        yield from _requests(documents[middle:])
    else:
        yield documents


def _size(document: NewDocument) -> int:
    return len(msgspec.json.encode(document, enc_hook=encode_custom))


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


class AsyncClient(PublishCalls, ReadCalls, ContextCalls, StoreVerbs):
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
        ca_file: file of the CAs that are trusted for ``https://``. Default: ``client.ca_file``, or
            the usual CAs.

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
        ca_file: str | Path | None = None,
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
            str(ca_file or defaults.ca_file),
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
