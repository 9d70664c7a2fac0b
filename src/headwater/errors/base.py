"""The base of all errors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The response of a server that an error of the client comes from; ``url`` is the server's."""

    url: str
    status: int
    type: str
    detail: str
    request_id: str | None = None


class HeadwaterError(Exception):
    """The base class of all Headwater errors."""

    response: ErrorResponse | None = None
    """The response of the server, if a client raised the error."""


class RequestError(HeadwaterError):
    """A request that the server refuses; ``headers`` are added to the response."""

    def __init__(self, message: str, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(message)
