"""Errors of requests that may not be answered.

HeadwaterError
└── RequestError
    ├── KeyRequiredError      no valid API key
    ├── ForeignRequestError   a remote request to a server without an API key
    ├── ScopeError            the key does not have the scope of the route (``model.callers``)
    ├── TooManyRequestsError  a rate limit is exceeded
    ├── TooManyWrongKeysError  an address has sent too many wrong keys
    ├── TooManyCallsError     a process runs as many calls of a verb as it may
    ├── SlowCallError         a call took longer than its verb may take
    └── TokenKeysUnavailableError  the keys that verify tokens could not be fetched
"""

from __future__ import annotations

import math
import reprlib

from headwater.errors.base import RequestError


class KeyRequiredError(RequestError):
    """A request without a valid API key."""

    def __init__(
        self,
        message: str = "no API key was sent; send it as X-API-Key or as Authorization: Bearer",
        *,
        error: str | None = None,
    ) -> None:
        super().__init__(message, www_authenticate=f'Bearer error="{error}"' if error else "Bearer")


class ForeignRequestError(RequestError):
    """A remote request to a server that has no API key and so serves its own machine only."""

    def __init__(self, source: str, value: str) -> None:
        super().__init__(
            f"{source} {reprlib.repr(value)} shows that the request is not from this machine, and "
            "a server without an API key serves only its own machine; to serve others, create a "
            "key with `headwater keys create NAME --scope admin`, or set HEADWATER_API_KEY"
        )


class TooManyRequestsError(RequestError):
    """A key or an address that exceeds its rate limit."""

    def __init__(self, subject: str, seconds: float) -> None:
        super().__init__(
            f"{subject} has exceeded its rate limit; wait and retry",
            retry_after=str(max(1, math.ceil(seconds))),
        )


class TooManyWrongKeysError(RequestError):
    """A key from an address that has sent too many wrong ones."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            "this address has sent too many wrong API keys; wait and retry with a valid key",
            retry_after=str(max(1, math.ceil(seconds))),
        )


class TooManyCallsError(RequestError):
    """A call of a verb that as many requests run as one process may run at the same time."""

    def __init__(self, operation: str, limit: int, remedy: str = "") -> None:
        super().__init__(
            f"{limit} requests run {operation}, as many as one process may run at the same time; "
            f"wait and retry{remedy}"
        )


class SlowCallError(RequestError):
    """A call that took longer than its verb may take."""

    def __init__(self, operation: str, seconds: float, remedy: str = "") -> None:
        self.seconds = seconds
        super().__init__(
            f"{operation} took longer than {seconds:g} s; ask for less at once{remedy}"
        )


class TokenKeysUnavailableError(RequestError):
    """A token that cannot be verified, because the keys of its issuer could not be fetched."""

    def __init__(self) -> None:
        super().__init__(
            "the token cannot be verified, because its issuer's keys could not be read (the "
            "server's log says why); retry, or use an API key"
        )
