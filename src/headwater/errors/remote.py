"""Errors of calls over HTTP that the store itself does not have."""

from __future__ import annotations

from headwater.errors.base import HeadwaterError


class RemoteError(HeadwaterError):
    """A call of a server over HTTP that failed."""


class ServerUnreachableError(RemoteError):
    """A server that does not answer: none listens at its URL, or a response is overdue."""

    def __init__(self, url: str, problem: str) -> None:
        self.url = url
        super().__init__(
            f"no response from {url}: {problem}; check the URL, and that `headwater serve` runs "
            "there"
        )


class ConnectionLostError(RemoteError):
    """A connection that ended before the result of a long action arrived."""

    def __init__(self, url: str, problem: str) -> None:
        self.url = url
        super().__init__(
            f"the connection to {url} ended before the result arrived: {problem}; check that "
            "`headwater serve` still runs there, then run this again"
        )


class UnexpectedResponseError(RemoteError):
    """A response that is not one of a Headwater server of this version."""

    def __init__(self, url: str, problem: str) -> None:
        self.url = url
        super().__init__(
            f"{url} did not answer as a Headwater server of this version: {problem}; check the "
            "URL, the proxies on the way, and the versions of both sides"
        )


class AccessDeniedError(RemoteError):
    """A request that its key does not allow: it is missing, wrong or without the scope."""


class RateLimitedError(RemoteError):
    """A request beyond a rate limit of the server, after all retries."""


class OverloadedError(RemoteError):
    """A request that the server has no capacity for, after all retries."""


class RequestRefusedError(RemoteError):
    """A request that the server refuses for another reason, such as its size."""
