"""The ASGI application: every request's way from its path to its answer."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from headwater.engine.worker import Worker
from headwater.http.access import Guard
from headwater.http.contexts import Contexts
from headwater.http.declarations import Declarations
from headwater.http.features import Features
from headwater.http.health import Operations
from headwater.http.ingest import Ingest
from headwater.http.openapi import document
from headwater.http.problems import answer_problem, log_problem
from headwater.http.records import Records
from headwater.http.request_metrics import Watch
from headwater.http.request_parsing import path_of
from headwater.http.responses import Response, send_answer
from headwater.http.routes import Endpoint, Resource, Route, Router
from headwater.store.feature_store import FeatureStore


def create_app(store: FeatureStore) -> App:
    """The application that serves a store, to be run by ``serve`` or mounted in another."""
    watch = Watch(logs=store.settings.http.access_log)
    return App(store, Guard(store.settings), watch, routes_of(store, watch))


def create_worker_app(store: FeatureStore, worker: Worker) -> App:
    """The application of a worker that serves nothing but its own metrics and probes."""
    watch = Watch(logs=store.settings.http.access_log)
    guard = Guard(store.settings, serves_data=False)
    return App(store, guard, watch, Operations(store, watch, worker).routes())


def routes_of(store: FeatureStore, watch: Watch) -> list[Route]:
    """The route table."""
    routes = [
        *Ingest(store).routes(),
        *Features(store).routes(),
        *Contexts(store).routes(),
        *Records(store).routes(),
        *Declarations(store).routes(),
        *Operations(store, watch).routes(),
    ]

    async def openapi() -> Response:
        """Gives this document."""
        return Response(200, described)

    routes.append(Route("GET", "/openapi.json", openapi, documents=dict[str, Any]))
    described = msgspec.json.encode(document(routes))
    return routes


class App:
    """Finds the route, lets the caller in, calls, counts."""

    def __init__(
        self, store: FeatureStore, guard: Guard, watch: Watch, routes: list[Route]
    ) -> None:
        self._store = store
        self._guard = guard
        self._watch = watch
        self.routes = routes
        self._router = Router(routes, store.settings.http.max_body_bytes)

    @property
    def private(self) -> bool:
        """Whether what contexts are made of stays out of the log."""
        return not self._store.settings.record.include_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._live(scope, receive, send)
            return
        began = time.perf_counter()
        method: str = scope["method"]
        path = path_of(scope)
        resource, segments = self._router.find(path)
        try:
            endpoint = self._admit(scope, resource, method)
            answer = await endpoint.answer(scope, receive, segments)
        except Exception as error:  # noqa: BLE001 - the last handler: the caller gets an answer
            log_problem(error, method, resource.template, private=self.private)
            answer = answer_problem(error)
        await send_answer(answer, send, head=method == "HEAD")
        self._watch.note(method, resource.template, path, answer.status, began)

    def flush(self) -> None:
        """Writes the log records that are still held back."""
        self._watch.flush()

    def _admit(self, scope: Scope, resource: Resource, method: str) -> Endpoint:
        """What answers the request, if the caller may ask; without a key nobody learns more."""
        endpoint = resource.endpoints.get(method)
        if endpoint is None or not endpoint.public:
            self._guard.admit(scope)
        if endpoint is None:
            raise resource.refusal(method)
        return endpoint

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Opens the store with the server that runs this application, and closes it with it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._store.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                self.flush()
                await self._store.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
