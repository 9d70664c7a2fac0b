"""The response of a route."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from starlette.responses import Response

NO_CONTENT = 204
NOT_MODIFIED = 304
SMALLEST_COMPRESSED = 1024

_NO_STORE = (b"cache-control", b"no-store")
NO_SNIFF = (b"x-content-type-options", b"nosniff")
# A cache that several keys share must not give one the response to another.
_FOREVER = (
    (b"cache-control", b"private, max-age=31536000, immutable"),
    (b"vary", b"Authorization, X-API-Key"),
)


class ApiResponse(Response):
    """A JSON body that must not be cached."""

    media_type = "application/json"
    etag: bytes | None = None
    is_negotiable: bool
    """Whether the response may be sent in another form; most are too small to be compressed."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        self.is_negotiable = len(self.body) >= SMALLEST_COMPRESSED
        # Starlette's own method looks up each header by name, which takes four times as long.
        self.raw_headers = [
            (b"content-type", self.media_type.encode()),
            (b"content-length", b"%d" % len(self.body)),
            NO_SNIFF,
            _NO_STORE,
        ]
        if self.status_code == NO_CONTENT:
            del self.raw_headers[:2]  # they describe a body
        if headers:
            self.raw_headers += [(name.encode(), text.encode()) for name, text in headers.items()]

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
