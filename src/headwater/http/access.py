"""Who may ask: keys, compared in constant time; without one, this machine only; and how often."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from headwater.errors import ConfigError
from headwater.http.problems import ForeignRequestError, KeyRequiredError, TooManyRequestsError
from headwater.http.responses import Header
from headwater.settings.schema import Settings


def check_address(settings: Settings, host: str) -> None:
    """Refuses to listen where others could ask without a key."""
    if not settings.api_keys and not is_loopback(host):
        raise ConfigError(
            f"without a key only this machine is served, not {host}; set HEADWATER_API_KEY, or "
            "listen on 127.0.0.1"
        )


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Says whether a host's name or address means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets a request through, or says why not."""

    def __init__(self, settings: Settings, *, serves_data: bool = True) -> None:
        self._keys = tuple(key.encode() for key in settings.api_keys)
        if not self._keys and settings.env == "production" and serves_data:
            raise ConfigError("production is not served without a key; set HEADWATER_API_KEY")
        rate = settings.http.rate_limit
        self._buckets = [Bucket(rate) for _ in self._keys or (b"",)] if rate else []

    def admit(self, scope: Scope) -> None:
        """Returns if the request may be answered."""
        number = 0
        if self._keys:
            number = self._number(_presented(scope["headers"]))
        else:
            _check_same_store(scope)
        if self._buckets:
            self._buckets[number].take(time.monotonic())

    def _number(self, presented: bytes) -> int:
        # Every key is compared, so that the time says nothing about which one was near.
        matches = [hmac.compare_digest(presented, key) for key in self._keys]
        if True not in matches:
            raise KeyRequiredError
        return matches.index(True)


class Bucket:
    """Tokens that come back at a steady rate, at most a second's worth."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._tokens = self._most
        self._since = time.monotonic()

    def take(self, now: float) -> None:
        """Takes one token, or says how long it takes until there is one."""
        self._tokens = min(self._most, self._tokens + (now - self._since) * self._rate)
        self._since = now
        if self._tokens < 1:
            raise TooManyRequestsError((1 - self._tokens) / self._rate)
        self._tokens -= 1


def _presented(headers: Iterable[Header]) -> bytes:
    bearer = b""
    for name, value in headers:
        if name == b"x-api-key":
            return value
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            bearer = value[7:].strip()
    return bearer


def _check_same_store(scope: Scope) -> None:
    """Refuses other machines, and pages of other sites in a browser on this one.

    A page can make a browser send requests here, under its own name (Origin) or, with a name that
    was pointed at this machine after the page was loaded, under that name (Host).
    """
    client: tuple[str, int] | None = scope.get("client")
    if client and not is_loopback(client[0]):
        raise ForeignRequestError("the address", client[0])
    for name, value in scope["headers"]:
        if name == b"host":
            _check_store_name("the host", "//" + value.decode("latin-1"))
        elif name == b"origin":
            _check_store_name("the origin", value.decode("latin-1"))


def _check_store_name(what: str, url: str) -> None:
    if not _names_this_machine(url):
        raise ForeignRequestError(what, url.removeprefix("//"))


@lru_cache(256)
def _names_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
