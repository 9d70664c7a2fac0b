"""The response of a route, in the form that its client asked for and may read."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Iterable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

CREATED = 201
ACCEPTED = 202
NO_CONTENT = 204
NOT_MODIFIED = 304
SMALLEST_COMPRESSED = 1024

NO_SNIFF = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")
_JSON = (b"content-type", b"application/json")
# A cache that several keys share must not give one the response to another.
_FOREVER = (
    (b"cache-control", b"private, max-age=31536000, immutable"),
    (b"vary", b"Authorization, X-API-Key"),
)
_INLINE_BYTES = 32_768  # takes less time than a thread hop and a switch of threads
_GZIP_WBITS = 31
_FASTEST = 1
_NOT_OF_THE_BODY = (b"content-length", b"content-type")
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After, X-Request-Id")
# The same for every path, so that a caller without a key does not learn which routes exist.
_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, PUT, DELETE",
    "access-control-allow-headers": (
        "Authorization, Content-Type, If-None-Match, X-API-Key, X-Request-Id"
    ),
    "access-control-max-age": "600",
}


class ApiResponse(Response):
    """A JSON body that must not be cached."""

    media_type = "application/json"
    etag: bytes | None = None
    gzipped: bytes | None = None
    """The compressed body if it is there already; empty if the body cannot be compressed."""
    is_negotiable: bool
    """Whether the response may be sent in another form; most are too small to be compressed."""

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = media_type,
    ) -> None:
        # Starlette's own looks up each header by name, and takes several times as long.
        self.body, self.status_code, self.background = body, status, None
        self.is_negotiable = len(body) >= SMALLEST_COMPRESSED
        self.raw_headers = [NO_SNIFF, _NO_STORE]
        if status != NO_CONTENT:
            kind = (
                _JSON if media_type == self.media_type else (b"content-type", media_type.encode())
            )
            self.raw_headers = [kind, (b"content-length", b"%d" % len(body)), NO_SNIFF, _NO_STORE]
        if headers:
            self.raw_headers += [(name.encode(), text.encode()) for name, text in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, headers = "http.response.start", self.raw_headers
        await send({"type": start, "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    def with_etag(self) -> ApiResponse:
        """Let a client that kept the response ask if it has changed."""
        return self._with_name(hashlib.sha256(self.body).hexdigest())

    def as_immutable(self, name: str) -> ApiResponse:
        """Let the client keep the response; ``name`` identifies its content forever."""
        self.raw_headers.remove(_NO_STORE)
        self.raw_headers += _FOREVER
        return self._with_name(name)

    def _with_name(self, name: str) -> ApiResponse:
        self.etag = b'"%s"' % name.encode()
        self.is_negotiable = True
        return self


async def negotiate(
    response: ApiResponse, request_headers: Iterable[tuple[bytes, bytes]]
) -> ApiResponse:
    """Return the response, 304 in place of it, or its compressed form.

    Compression cannot reveal a secret by the size of a response (BREACH): browsers do not add keys
    to requests, so a page that could measure responses has the key already.
    """
    headers = dict(request_headers)
    response.raw_headers.append((b"vary", b"Accept-Encoding"))
    if response.etag is not None:
        if _has_current(headers.get(b"if-none-match", b""), response.etag):
            kept = [pair for pair in response.raw_headers if pair[0] not in _NOT_OF_THE_BODY]
            unchanged = ApiResponse(b"", NOT_MODIFIED)
            unchanged.raw_headers = [*kept, (b"etag", response.etag)]
            return unchanged
        response.raw_headers.append((b"etag", response.etag))
    body, gzipped = bytes(response.body), response.gzipped
    is_large = len(body) >= SMALLEST_COMPRESSED and gzipped != b""
    if not is_large or not _accepts_gzip(headers.get(b"accept-encoding", b"")):
        return response
    if gzipped is None:
        is_quick = len(body) <= _INLINE_BYTES
        gzipped = _compress(body) if is_quick else await asyncio.to_thread(_compress, body)
    response.body = gzipped
    # The ETag of the compressed form is weak: other bytes, equal meaning.
    response.raw_headers = [
        (b"content-length", b"%d" % len(response.body)) if name == b"content-length"
        else (name, b"W/" + value) if name == b"etag"
        else (name, value)
        for name, value in response.raw_headers
    ]  # fmt: skip
    response.raw_headers.append((b"content-encoding", b"gzip"))
    return response


def _has_current(if_none_match: bytes, etag: bytes) -> bool:
    """Return whether a client that sent this header has the content of an ETag."""
    given = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return etag in given or given == [b"*"]


def _accepts_gzip(accept_encoding: bytes) -> bool:
    """Return whether gzip is among the accepted encodings, and not with the weight 0."""
    weights: dict[bytes, bytes] = {}
    for encoding in accept_encoding.lower().replace(b" ", b"").split(b","):
        name, _, weight = encoding.partition(b";q=")
        weights[name] = weight
    weight = weights.get(b"gzip", weights.get(b"*", b"0"))
    return weight.strip(b"0.") != b"" or weight == b""


def _compress(body: bytes) -> bytes:
    return zlib.compress(body, _FASTEST, wbits=_GZIP_WBITS)


class Cors:
    """Allows web pages of some origins to call the API with a key, never with cookies."""

    def __init__(self, origins: str) -> None:
        self._origins = frozenset(origins.replace(" ", "").encode().split(b","))

    def is_preflight(self, scope: Scope) -> bool:
        """Return whether a browser asks if a page of a configured origin may send a request."""
        headers = dict(scope["headers"])
        is_question = b"access-control-request-method" in headers
        return is_question and headers.get(b"origin") in self._origins

    def preflight_response(self) -> ApiResponse:
        """Return what browsers may send for a page."""
        return ApiResponse(b"", NO_CONTENT, _PREFLIGHT)

    def add_headers(self, scope: Scope, response: Response) -> None:
        """Let the page that sent the request read the response, if its origin is configured."""
        response.raw_headers.append((b"vary", b"Origin"))
        origin = dict(scope["headers"]).get(b"origin")
        if origin in self._origins:
            response.raw_headers += [(b"access-control-allow-origin", origin), _EXPOSED]
