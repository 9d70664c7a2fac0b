"""Access control: API keys, or this machine only, and a rate limit for each key."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from headwater.access.errors import (
    ForeignRequestError,
    KeyRequiredError,
    TooManyRequestsError,
)
from headwater.core.callers import Caller
from headwater.errors import ConfigError
from headwater.settings.schema import Settings


def check_address(settings: Settings, host: str) -> None:
    """Raise ConfigError if other machines could connect without an API key."""
    if not settings.api_keys and not is_loopback(host):
        raise ConfigError(
            f"cannot listen on {host} without an API key, because other machines could connect; "
            "set HEADWATER_API_KEY, or listen on 127.0.0.1"
        )


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Admits requests that have a valid key or, if there are no keys, come from this machine."""

    def __init__(self, settings: Settings, *, serves_data: bool = True) -> None:
        self._keys = tuple(key.encode() for key in settings.api_keys)
        if not self._keys and settings.env == "production" and serves_data:
            raise ConfigError("production needs an API key; set HEADWATER_API_KEY")
        names = [f"api_key {number}" for number in range(1, len(self._keys) + 1)]
        self._callers = [Caller(name) for name in names or ["this machine"]]
        rate = settings.http.rate_limit
        self._buckets = [TokenBucket(rate) for _ in self._keys or (b"",)] if rate else []

    def admit(self, scope: Scope) -> Caller:
        """Return the caller; raise if the request may not be answered."""
        number = 0
        if self._keys:
            number = self._key_number(_request_key(scope["headers"]))
        else:
            _check_local(scope)
        if self._buckets:
            self._buckets[number].take(time.monotonic())
        return self._callers[number]

    def _key_number(self, key: bytes) -> int:
        # Every key is compared, so that the response time does not depend on which one matches.
        matches = [hmac.compare_digest(key, known) for known in self._keys]
        if True not in matches:
            raise KeyRequiredError
        return matches.index(True)


class TokenBucket:
    """A rate limit that allows bursts of up to one second's requests."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate)
        self._tokens = self._capacity
        self._updated_at = time.monotonic()

    def take(self, now: float) -> None:
        """Take one token; raise TooManyRequestsError if none is left."""
        self._tokens = min(self._capacity, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            raise TooManyRequestsError((1 - self._tokens) / self._rate)
        self._tokens -= 1


def _request_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    bearer = b""
    for name, value in headers:
        if name == b"x-api-key":
            return value
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            bearer = value[7:].strip()
    return bearer


def _check_local(scope: Scope) -> None:
    """Raise if the request comes from another machine, or from a page of another site.

    A web page can make the browser on this machine send requests here, with the page's Origin or,
    after DNS rebinding, with a Host name of the page's site.
    """
    client: tuple[str, int] | None = scope.get("client")
    if client and not is_loopback(client[0]):
        raise ForeignRequestError("the address", client[0])
    for name, value in scope["headers"]:
        if name in (b"host", b"origin"):
            text = value.decode("latin-1")
            if not _is_local_url(text if name == b"origin" else f"//{text}"):
                raise ForeignRequestError(f"the {name.decode()}", text)


@lru_cache(256)
def _is_local_url(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
