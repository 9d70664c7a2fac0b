"""Errors of requests, raised before the store is called; ``access.errors`` has more.

HeadwaterError
└── RequestError
    ├── MalformedError          the request cannot be parsed
    ├── NoRouteError            no route has the path
    ├── MethodError             the path has no route with the method
    ├── RequestTimeoutError     the client took too long to send the request
    ├── TooLargeError           the body exceeds the limit
    ├── UrlTooLongError         the URL exceeds the limit
    ├── HeadTooLargeError       the headers exceed the limits
    ├── MediaTypeError          the route does not accept the body's media type
    ├── EncodingError           the route does not accept how the body is compressed
    ├── TableTooLargeError      the file that was sent has too many rows or columns
    ├── TooManyValuesError      the request is for more values than one may read at once
    ├── DisconnectedError       the client closed its connection before the response
    ├── TooManyConnectionsError  the server has as many open connections as it may have
    ├── TooManyTailsError       the server has as many live tails as it may have
    ├── StoreFullError          the store takes more memory than it may
    └── BacklogError            too many events wait to be processed
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors.base import RequestError
from headwater.errors.hints import quoted

REFUSAL = "headwater.refusal"
"""The key of the error in the scope of a request that the server has refused meanwhile."""


class MalformedError(RequestError):
    """A request that cannot be parsed."""


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


class RequestTimeoutError(RequestError):
    """A request that did not arrive in time."""

    def __init__(self, part: str, setting: str) -> None:
        super().__init__(f"the {part} of the request did not arrive in time; see {setting}")


class UrlTooLongError(RequestError):
    """A URL beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"the URL is longer than {limit} bytes; send long arguments in a body")


class HeadTooLargeError(RequestError):
    """More headers, or larger ones, than the limits allow."""

    def __init__(self, count: int, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the request has more than {count} headers or {limit} bytes of them; send fewer"
        )


class TooLargeError(RequestError):
    """A body larger than ``http.max_body_bytes``, or a file than ``http.max_upload_bytes``."""

    def __init__(
        self, limit: int, setting: str = "http.max_body_bytes", what: str = "the body"
    ) -> None:
        self.limit = limit
        super().__init__(
            f"{what} is larger than {limit} bytes; send less at once, or raise {setting}"
        )


class TableTooLargeError(RequestError):
    """A file with more rows than ``http.max_table_rows``, or columns than its setting allows."""

    def __init__(self, count: int, content: str, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the file has {count} {content}, more than the maximum of {limit}; send several files "
            f"with fewer {content} each, or raise http.max_table_{content}"
        )


class MediaTypeError(RequestError):
    """A body of a media type that the route does not accept."""

    def __init__(self, media_type: str, accepted: Sequence[str]) -> None:
        super().__init__(
            f"Content-Type {quoted(media_type)} is not accepted; use {' or '.join(accepted)}"
        )


class EncodingError(RequestError):
    """A body whose ``Content-Encoding`` the route does not accept."""

    def __init__(self, encoding: str, accepted: str) -> None:
        use = "none" if accepted == "identity" else f"{accepted} or none"
        super().__init__(
            f"Content-Encoding {quoted(encoding)} is not accepted; use {use}",
            accept_encoding=accepted,
        )


class TooManyConnectionsError(RequestError):
    """A connection refused because the server needs its other descriptors for the store."""

    def __init__(self, limit: int, address: str | None = None) -> None:
        problem = (
            f"the server has {limit} open connections, as many as its limit of open files allows; "
            "close some and retry, or raise the limit with `ulimit -n` or LimitNOFILE="
            if address is None
            else f"{address} has {limit} open connections, as many as one address may have; close "
            "some and retry, or raise http.max_connections_per_address"
        )
        super().__init__(problem)


class TooManyTailsError(RequestError):
    """A live tail refused because each of them asks the store twice a second."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the server has {limit} live tails, as many as one process may have; close some and "
            "retry, or list events with GET /v1/events"
        )


class TooManyValuesError(RequestError):
    """A request for more than ``http.max_values`` values."""

    def __init__(self, entities: int, features: int, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the request is for {entities * features} values ({entities} entity ids and "
            f"{features} features), more than the maximum of {limit}; send several requests, or "
            "raise http.max_values"
        )


class DisconnectedError(RequestError):
    """A client that closed its connection before it got the response."""

    def __init__(self) -> None:
        super().__init__("the client closed its connection before it got the response")


class StoreFullError(RequestError):
    """Events refused because the store takes more than ``redis.max_memory``."""

    def __init__(self, taken: int, limit: int) -> None:
        super().__init__(
            f"the store takes about {taken:,} bytes of Redis's memory, and {limit:,} are its "
            "maximum; no event was stored: wait until workers and Postgres have caught up, forget "
            "what is not needed any more, or raise redis.max_memory"
        )


class BacklogError(RequestError):
    """Events refused because more than ``ingest.max_backlog`` would wait."""

    def __init__(self, waiting: int, events: int, limit: int) -> None:
        wait = "wait and retry, or add workers"
        remedy = wait if events <= limit else f"send at most {limit} at once"
        super().__init__(
            f"{waiting} events wait to be processed, and {events} more would exceed the maximum of "
            f"{limit}; none was stored: {remedy}, or raise ingest.max_backlog"
        )
