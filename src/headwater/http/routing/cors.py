"""Cross-origin requests: web pages of configured origins may call the API."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Scope

from headwater.http.routing.responses import NO_CONTENT, ApiResponse

_VARY = (b"vary", b"Origin")
_ALLOW_ORIGIN = b"access-control-allow-origin"
_REQUESTED_METHOD = b"access-control-request-method"
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After, X-Request-Id")
# The same for every path, so that a caller without a key does not learn which routes exist.
_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, PUT, DELETE",
    "access-control-allow-headers": (
        "Authorization, Content-Type, If-None-Match, X-API-Key, X-Request-Id"
    ),
    "access-control-max-age": "600",
}


def preflight_response() -> ApiResponse:
    """Return what browsers may send for a page."""
    return ApiResponse(b"", NO_CONTENT, _PREFLIGHT)


class Cors:
    """Allows web pages of some origins to call the API with a key, never with cookies."""

    def __init__(self, origins: str) -> None:
        self._origins = frozenset(origins.replace(" ", "").encode().split(b","))

    def is_preflight(self, scope: Scope) -> bool:
        """Return whether a browser asks if a page of a configured origin may send a request."""
        headers = dict(scope["headers"])
        return _REQUESTED_METHOD in headers and headers.get(b"origin") in self._origins

    def add_headers(self, scope: Scope, response: Response) -> None:
        """Let the page that sent the request read the response, if its origin is configured."""
        response.raw_headers.append(_VARY)
        origin = dict(scope["headers"]).get(b"origin")
        if origin in self._origins:
            response.raw_headers += [(_ALLOW_ORIGIN, origin), _EXPOSED]
