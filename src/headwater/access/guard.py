"""Access control: a valid key, or this machine only; rate limits of keys and addresses."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.types import Scope

from headwater.access.errors import KeyRequiredError, TooManyWrongKeysError
from headwater.access.key_format import check_strength, is_generated
from headwater.access.key_ring import KeyRing, KnownKey, has_api_keys
from headwater.access.local_requests import check_local, is_loopback
from headwater.access.rate_limits import BucketTable, TokenBucket
from headwater.errors import ConfigError, HeadwaterError
from headwater.model.callers import Caller
from headwater.settings.schema import Settings

if TYPE_CHECKING:
    from headwater.access.tokens import Tokens

THIS_MACHINE = Caller("this machine")
"""The caller of requests that need no key."""
_DOTS = 2
_ALLOWED_FAILURES = 10
_WINDOW_SECONDS = 10.0
_LARGEST_TABLE = 10_000


def check_address(settings: Settings, host: str) -> None:
    """Raise ConfigError if other machines could connect without an API key, or guess it."""
    if is_loopback(host):
        return
    if not has_access_control(settings):
        raise ConfigError(
            f"cannot listen on {host} without an API key, because other machines could connect; "
            "create one with `headwater keys create NAME --scope admin`, set HEADWATER_API_KEY, or "
            "listen on 127.0.0.1"
        )
    for key in settings.api_keys:
        check_strength(key)


class Guard:
    """Admits requests that have a valid key or, if there are no keys, come from this machine."""

    def __init__(self, settings: Settings, *, serves_data: bool = True) -> None:
        self.keys = KeyRing(settings)
        self._tokens: Tokens | None = None
        if settings.oidc.issuer:
            from headwater.access.tokens import Tokens  # noqa: PLC0415 - needs the extra `oidc`

            self._tokens = Tokens(settings.oidc)
        if not has_access_control(settings) and settings.env == "production" and serves_data:
            raise ConfigError(
                "production needs an API key; create one with "
                "`headwater keys create NAME --scope admin`, or set HEADWATER_API_KEY"
            )
        rates = settings.http
        self._local = TokenBucket(rates.rate_limit) if rates.rate_limit else None
        per_address = rates.address_rate_limit
        self._addresses = BucketTable(per_address) if per_address else None
        self._callers = BucketTable(rates.rate_limit) if rates.rate_limit else None
        self._wrong = WrongKeys()

    async def admit(self, scope: Scope) -> Caller:
        """Return the caller; raise if the request may not be answered."""
        return self.known(scope) or await self.of_token(scope)

    def known(self, scope: Scope) -> Caller | None:
        """Return the caller if its key is known or none is needed, or None if it has a token.

        Raise if the request may not be answered. Only a token may need the keys of its issuer, so
        most requests are admitted without a coroutine.
        """
        now = time.monotonic()
        if now >= self.keys.next_look:
            self.keys.look(now)
        if self._addresses:
            self._addresses.take(_address(scope), now, "this address")
        if self.keys.is_empty and self._tokens is None:
            check_local(scope)
            if self._local:
                self._local.take(now, "this machine")
            return THIS_MACHINE
        key = request_key(scope["headers"])
        grant = self.keys.find(key)
        if grant is None and self._tokens is not None and is_jwt(key):
            return None
        if grant is None or not grant.is_used:
            grant = self._first_use(grant, key, scope, now)
        if grant.bucket:
            grant.bucket.take(now, f"the key {grant.caller.name!r}")
        return grant.caller

    async def of_token(self, scope: Scope) -> Caller:
        """Return the caller of a request with a token; raise if the token is not valid."""
        assert self._tokens is not None, "without tokens, every request is known or refused"
        # Tokens are not guessed, so wrong ones do not slow their address down.
        caller = await self._tokens.caller(request_key(scope["headers"]))
        if self._callers:
            self._callers.take(caller.name, time.monotonic(), f"the caller {caller.name!r}")
        return caller

    async def recognize(self, scope: Scope) -> Caller | None:
        """Return the caller of a request that needs no key, or None without a valid one."""
        if not request_key(scope["headers"]):
            return None
        try:
            return await self.admit(scope)
        except HeadwaterError:
            return None

    def _first_use(self, grant: KnownKey | None, key: bytes, scope: Scope, now: float) -> KnownKey:
        """Return a key that no request had before; raise if it is unknown."""
        if not key:
            raise KeyRequiredError
        # Wrong keys from the address of a proxy must not lock out the keys behind it.
        if grant is None or not is_generated(key):
            self._wrong.check(_address(scope), now)
        if grant is None:
            self._wrong.add(_address(scope), now)
            raise KeyRequiredError(
                "the API key is not accepted: it is unknown or revoked; use another"
            )
        grant.is_used = True
        return grant


def has_access_control(settings: Settings) -> bool:
    """Return whether requests need an API key or a token."""
    return bool(settings.oidc.issuer) or has_api_keys(settings)


def is_jwt(key: bytes) -> bool:
    """Return whether a text has the form of a JWT: three parts, the first a JSON object."""
    return key.startswith(b"eyJ") and key.count(b".") == _DOTS


def request_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the key in the headers of a request, or nothing."""
    bearer = b""
    for name, value in headers:
        if name == b"x-api-key":
            return value
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            bearer = value[7:].strip()
    return bearer


def _address(scope: Scope) -> str:
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


class WrongKeys:
    """Counts wrong keys by address.

    After ten in ten seconds, an address has to wait for the end of these ten seconds. Keys that
    were valid in an earlier request are not affected: clients behind a proxy share its address.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, address: str, now: float) -> None:
        """Raise TooManyWrongKeysError if an address has to wait."""
        number, until = self._failures.get(address, (0, now))
        if number >= _ALLOWED_FAILURES and until > now:
            raise TooManyWrongKeysError(until - now)

    def add(self, address: str, now: float) -> None:
        """Count a wrong key of an address."""
        number, until = self._failures.pop(address, (0, now))
        if until <= now:
            number, until = 0, now + _WINDOW_SECONDS
        if len(self._failures) >= _LARGEST_TABLE:
            self._failures.popitem(last=False)
        self._failures[address] = (number + 1, until)
