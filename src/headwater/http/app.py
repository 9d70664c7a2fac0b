"""The ASGI application that serves a store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from headwater.access.guard import Guard
from headwater.core.json_values import prepare
from headwater.core.ui_files import UI_FOLDER
from headwater.declarations.runtime import runtime_of
from headwater.engine.last_hour import LastHour
from headwater.engine.worker.worker import Worker
from headwater.errors import CallerLimitError
from headwater.http.routes.context_lists import ContextLists
from headwater.http.routes.contexts import Contexts
from headwater.http.routes.documentation import Documentation
from headwater.http.routes.event_tail import EventStream, EventTail, OpenTails
from headwater.http.routes.features import Features
from headwater.http.routes.health import Probes
from headwater.http.routes.history import History
from headwater.http.routes.indexes import Indexes
from headwater.http.routes.ingest import Ingest
from headwater.http.routes.overview import Overviews
from headwater.http.routes.process_reports import ServerProcesses
from headwater.http.routes.records import Records
from headwater.http.routes.verbs import verb_routes
from headwater.http.routes.web_ui import add_web_ui
from headwater.http.routing.mounts import AsgiMount, MountEndpoint
from headwater.http.routing.problems import log_problem, problem_response
from headwater.http.routing.request_errors import MethodError, NoRouteError
from headwater.http.routing.request_metrics import (
    HEADER,
    UNMATCHED,
    RequestIds,
    RequestMetrics,
    traced_requests,
)
from headwater.http.routing.request_parsing import quoted_path
from headwater.http.routing.responses import ApiResponse, Cors, negotiate
from headwater.http.routing.route import AnyEndpoint, Resource, Route, RouteTree
from headwater.model.callers import Caller, current_caller, set_caller
from headwater.model.contexts import Assembled
from headwater.model.indexes import SearchHits
from headwater.store.feature_store import FeatureStore
from headwater.telemetry import tracer_of

_UNMATCHED = Resource(UNMATCHED)
# A backfill whose client has gone ends after the file that is being replayed.
_FILES_OF_BACKFILL = 16


def create_app(
    store: FeatureStore,
    processes: ServerProcesses | None = None,
    mounts: Sequence[AsgiMount] = (),
    ui_folder: Path = UI_FOLDER,
) -> App:
    """Return the ASGI application that serves a store, to run or to mount in another.

    Metrics and readiness include those of the other ``processes`` of the server. Applications of
    other packages are ``mounts``; ``ui_folder`` has the files of the web UI.

    Example:
        >>> app = create_app(FeatureStore())  # uvicorn main:app
    """
    metrics = RequestMetrics(store.settings)
    hour, tails = LastHour(store), OpenTails()
    routes = routes_of(store, metrics, tails, processes, hour)

    def end_waiting() -> None:
        tails.stop()
        runtime_of(store).publisher.waits.stop()

    app = App(store, Guard(store.settings), metrics, routes, mounts, hour, end_waiting)
    # All other routes of a context begin with /v1.
    app.tree.alias("/v1/context/{id}/explain", "/context/{id}/explain")
    add_web_ui(app.tree, ui_folder)
    return app


def create_mounts_app(store: FeatureStore, mounts: Sequence[AsgiMount]) -> App:
    """Return the ASGI application of mounts alone, with metrics and probes."""
    metrics = RequestMetrics(store.settings)
    return App(store, Guard(store.settings), metrics, Probes(store, metrics).routes(), mounts)


def create_worker_app(store: FeatureStore, worker: Worker) -> App:
    """Return the ASGI application of a worker, which serves only its metrics and probes."""
    metrics = RequestMetrics(store.settings)
    guard = Guard(store.settings, serves_data=False)
    return App(store, guard, metrics, Probes(store, metrics, worker=worker).routes())


def routes_of(
    store: FeatureStore,
    metrics: RequestMetrics,
    tails: OpenTails,
    processes: ServerProcesses | None = None,
    hour: LastHour | None = None,
) -> list[Route]:
    """Return the route table."""

    routes = [
        *Features(store).routes(),
        *Ingest(store).routes(),
        *Contexts(store).routes(),
        *ContextLists(store).routes(),
        *verb_routes(store.records, store.settings),
        *Records(store).routes(),
        *Indexes(store).routes(),
        *verb_routes(store.indexes, store.settings),
        *History(store).routes(),
        *verb_routes(store, store.settings, index={"wait": False}),
        *verb_routes(store.bus, store.settings),
        *verb_routes(store.admin, store.settings),
        *verb_routes(store.catalog, store.settings),
        *verb_routes(store.lake, store.settings),
        *verb_routes(store.sources, store.settings),
        *verb_routes(store.evaluations, store.settings),
        *verb_routes(store.dead_letters, store.settings),
        *EventTail(store, tails).routes(),
        *verb_routes(store.backfills, store.settings, run={"files": _FILES_OF_BACKFILL}),
        *Probes(store, metrics, processes=processes).routes(),
        *Overviews(store, hour or LastHour(store), processes).routes(),
    ]
    return [*routes, *Documentation(store, routes, processes).routes()]


class App(Router):
    """A Starlette router with a fast path for the typed routes.

    Starlette serves the lifespan, websockets and all routes that are not typed, such as mounts.
    """

    def __init__(
        self,
        store: FeatureStore,
        guard: Guard,
        metrics: RequestMetrics,
        typed: Sequence[Route],
        mounts: Sequence[AsgiMount] = (),
        hour: LastHour | None = None,
        end_streams: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(redirect_slashes=False, lifespan=self._lifespan)
        self.typed_routes = typed
        self.private = not store.settings.record.include_content
        """Whether the log leaves out messages of user code, which may contain stored values."""
        self.end_streams = end_streams
        """End the responses that would go on for as long as their clients listen."""
        self._store = store
        self._guard = guard
        self._metrics = metrics
        self._ids = RequestIds()
        origins = store.settings.http.cors_origins
        self._cors = Cors(origins) if origins else None
        self.tree = RouteTree(typed, store.settings.http)
        self._running = [mount.running for mount in mounts] + ([hour.running] if hour else [])
        for mount in mounts:
            self.tree.add("POST", mount.path, MountEndpoint(mount))
        self._serve = traced_requests(self._answer, tracer_of(store.settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = quoted_path(scope)
            match = self.tree.find(path)
            if match is not None:
                await self._serve(match, path, scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for an unknown path."""
        if scope["type"] == "http":
            await self._serve((_UNMATCHED, []), quoted_path(scope), scope, receive, send)
        else:
            await super().not_found(scope, receive, send)

    async def _answer(
        self,
        match: tuple[Resource, list[str]],
        path: str,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request and record it."""
        began = time.perf_counter()
        resource, parameters = match
        method: str = scope["method"]
        request_id = self._ids.of(scope["headers"])
        before = current_caller()
        try:
            if method == "OPTIONS" and self._cors and self._cors.is_preflight(scope):
                response: Response = self._cors.preflight_response()
            else:
                endpoint = resource.endpoints.get(method)
                if endpoint is not None and endpoint.scope == "public":
                    set_caller(await self._guard.recognize(scope))
                else:
                    caller = self._guard.known(scope) or await self._guard.of_token(scope)
                    set_caller(caller)
                    _check(caller, endpoint)
                if endpoint is None:  # without a key, callers do not learn if it exists
                    allowed = sorted(resource.endpoints)
                    raise MethodError(method, allowed) if allowed else NoRouteError
                response = await endpoint.respond(scope, receive, parameters)
        except Exception as error:  # noqa: BLE001 - the last handler: the caller gets a response
            log_problem(error, method, resource.path, request_id, private=self.private)
            response = problem_response(error, request_id)
        if isinstance(response, ApiResponse) and response.is_negotiable:
            response = await negotiate(response, scope["headers"])
        if self._cors:
            self._cors.add_headers(scope, response)
        response.raw_headers.append((HEADER, request_id.encode()))
        if method == "HEAD":  # without the body, which a stream would read to its end for nothing
            head = Response(status_code=response.status_code)
            head.raw_headers = response.raw_headers
            response = head
        answered = (method, resource.path, path, response.status_code, began, request_id)
        if isinstance(response, EventStream):  # it lasts for as long as its client listens
            self._metrics.record(*answered)
            await response(scope, receive, send)
        else:
            await response(scope, receive, send)
            self._metrics.record(*answered)
        # A program may call the application in the task in which it uses the store.
        set_caller(before)

    def warm_up(self) -> None:
        """Look at the types of the responses that are sent most, as their first one would."""
        for kind in (Assembled, SearchHits):
            prepare(kind)
            msgspec.json.Decoder(kind)  # looks at all types inside, which the process keeps

    def flush(self) -> None:
        """Record the metrics and log records that are still buffered."""
        self._metrics.flush()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the mounts answer requests, and sample the last hour."""
        async with AsyncExitStack() as stack:
            for start in self._running:
                await stack.enter_async_context(start())
            yield

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        """Keep the store open while the server runs."""
        async with self._store, self.running():
            try:
                yield
            finally:
                self.flush()


def _check(caller: Caller, endpoint: AnyEndpoint | None) -> None:
    """Raise if the scopes or the limits of a caller do not allow an endpoint."""
    if endpoint is None:
        return
    needed = endpoint.scope
    if needed != "any" and needed != "public" and needed not in caller.scopes:
        caller.check(needed)
    if caller.limits is not None and not endpoint.applies_limits:
        raise CallerLimitError(caller.name, "this route does not apply limits of keys")
