"""The ASGI application: every request's way from its path to its answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from headwater.http.access import Guard
from headwater.http.answers import Answer, send_answer
from headwater.http.features import Features
from headwater.http.ingest import Ingest
from headwater.http.inputs import path_of
from headwater.http.openapi import document
from headwater.http.operations import Operations
from headwater.http.problems import answer_problem, log_problem
from headwater.http.routes import Resource, Route, Router
from headwater.http.watch import Watch
from headwater.store import FeatureStore


def create_app(store: FeatureStore) -> App:
    """The application that serves a store, to be run by ``serve`` or mounted in another."""
    return App(store)


def routes_of(store: FeatureStore) -> list[Route]:
    """The route table."""
    routes = [
        *Ingest(store).routes(),
        *Features(store).routes(),
        *Operations(store).routes(),
    ]

    async def openapi() -> Answer:
        """Gives this document."""
        return Answer(200, described)

    routes.append(Route("GET", "/openapi.json", openapi, documents=dict[str, Any]))
    described = msgspec.json.encode(document(routes))
    return routes


class App:
    """Finds the route, lets the caller in, calls, counts."""

    def __init__(self, store: FeatureStore) -> None:
        settings = store.settings
        self._store = store
        self._guard = Guard(settings)
        self._router = Router(routes_of(store), settings.http.max_body_bytes)
        self._watch = Watch(logs=settings.http.access_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._answer(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close"})

    def flush(self) -> None:
        """Writes the log records that are still held back."""
        self._watch.flush()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        method: str = scope["method"]
        path = path_of(scope)
        resource, segments = self._router.find(path)
        try:
            answer = await self._call(resource, method, segments, scope, receive)
        except Exception as error:  # noqa: BLE001 - the last handler: whatever it was, the caller gets an answer
            log_problem(error, method, resource.template)
            answer = answer_problem(error)
        await send_answer(answer, send, head=method == "HEAD")
        seconds = time.perf_counter() - started
        self._watch.note(method, resource.template, path, answer.status, seconds)

    async def _call(
        self,
        resource: Resource,
        method: str,
        segments: Sequence[str],
        scope: Scope,
        receive: Receive,
    ) -> Answer:
        endpoint = resource.endpoints.get(method)
        if endpoint is None or not endpoint.public:
            self._guard.admit(scope)
        if endpoint is None:
            raise resource.refusal(method)
        return await endpoint.answer(scope, receive, segments)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Opens the store with the server that runs this application, and closes it with it."""
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
