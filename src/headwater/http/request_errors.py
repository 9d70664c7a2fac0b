"""Errors of requests, raised before the store is called.

HeadwaterError
└── RequestError
    ├── MalformedError          the request cannot be parsed
    ├── KeyRequiredError        no valid API key
    ├── ForeignRequestError     a remote request to a server without an API key
    ├── NoRouteError            no route has the path
    ├── MethodError             the path has no route with the method
    ├── TooLargeError           the body exceeds the limit
    ├── MediaTypeError          the route does not accept the body's media type
    ├── TooManyRequestsError    the rate limit of the key is exceeded
    ├── TooManyConnectionsError  the server has as many open connections as it may have
    └── BacklogError            too many events wait to be processed
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.errors import HeadwaterError


class RequestError(HeadwaterError):
    """A request that the server refuses; ``headers`` are added to the response."""

    def __init__(self, message: str, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(message)


class MalformedError(RequestError):
    """A request that cannot be parsed."""


class KeyRequiredError(RequestError):
    """A request without a valid API key."""

    def __init__(self) -> None:
        super().__init__(
            "the API key is missing or wrong; send it as X-API-Key or as Authorization: Bearer",
            www_authenticate="Bearer",
        )


class ForeignRequestError(RequestError):
    """A remote request to a server that has no API key and so serves its own machine only."""

    def __init__(self, source: str, value: str) -> None:
        super().__init__(
            f"{source} {value!r} is not this machine, and a server without an API key serves only "
            "its own machine; set HEADWATER_API_KEY to serve others"
        )


class NoRouteError(RequestError):
    """A path that no route has."""

    def __init__(self) -> None:
        super().__init__("no route has this path; /openapi.json lists all routes")


class MethodError(RequestError):
    """A method that no route of the path has."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(
            f"method {method} is not allowed for this path; use {' or '.join(allowed)}",
            allow=", ".join(allowed),
        )


class TooLargeError(RequestError):
    """A body larger than ``http.max_body_bytes``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the body is larger than {limit} bytes; send less at once, or raise "
            "http.max_body_bytes"
        )


class MediaTypeError(RequestError):
    """A body of a media type that the route does not accept."""

    def __init__(self, media_type: str, accepted: Sequence[str]) -> None:
        super().__init__(
            f"Content-Type {media_type!r} is not accepted; use {' or '.join(accepted)}"
        )


class TooManyRequestsError(RequestError):
    """A key that exceeds ``http.rate_limit``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            "this API key has exceeded its rate limit; wait and retry",
            retry_after=str(max(1, math.ceil(seconds))),
        )


class TooManyConnectionsError(RequestError):
    """A connection refused because the server needs its other descriptors for the store."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the server has {limit} open connections, as many as its limit of open files allows; "
            "close some and retry, or raise the limit with `ulimit -n` or LimitNOFILE="
        )


class BacklogError(RequestError):
    """An event refused because more than ``ingest.max_backlog`` events wait."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} events wait to be processed; wait and retry")
