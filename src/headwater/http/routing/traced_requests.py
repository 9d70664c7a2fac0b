"""Spans of requests, which continue the trace of the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from headwater.core.tracing import Tracer, header_traceparent
from headwater.http.routing.request_metrics import METHODS
from headwater.http.routing.route import Resource
from headwater.telemetry import attributes as names

_Found = tuple[Resource, list[str]]
Serve = Callable[[_Found, str, Scope, Receive, Send], Awaitable[None]]
# Probes and scrapes would be most of the traces.
_UNTRACED = frozenset({"public", "metrics"})
_OTHER = "_OTHER"
_FIRST_SERVER_ERROR = 500


def traced_requests(serve: Serve, tracer: Tracer | None) -> Serve:
    """Return a function that answers requests in spans; without a tracer it is the same."""
    return serve if tracer is None else partial(_serve, tracer, serve)


async def _serve(
    tracer: Tracer,
    inner: Serve,
    found: _Found,
    path: str,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    resource = found[0]
    endpoint = resource.endpoints.get(scope["method"])
    if endpoint is not None and endpoint.scope in _UNTRACED:
        await inner(found, path, scope, receive, send)
        return
    method = scope["method"] if scope["method"] in METHODS else _OTHER
    # An application around this one may have begun a span already.
    parent = None if tracer.current() else header_traceparent(scope["headers"])
    attributes = {names.HTTP_METHOD: method, names.HTTP_ROUTE: resource.path}
    with tracer.span(f"{method} {resource.path}", attributes, kind="server", parent=parent) as span:

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                span.set({names.HTTP_STATUS: status})
                if status >= _FIRST_SERVER_ERROR:
                    span.fail(f"answered with {status}")
            await send(message)

        await inner(found, path, scope, receive, observed)
