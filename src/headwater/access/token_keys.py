"""The public keys of an issuer of tokens: a JWKS from a file or a URL, cached."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from headwater.access.errors import TokenKeysUnavailableError
from headwater.access.local_requests import is_loopback
from headwater.core.logging import log
from headwater.errors import ConfigError

_FRESH_SECONDS = 600.0
"""How long keys are used before they are fetched again in the background."""
_SECONDS_BETWEEN_FETCHES = 30.0
"""Tokens with unknown key ids cause at most one fetch in this time."""
_SECONDS_AFTER_FAILURE = 5.0
_TIMEOUT_SECONDS = 5.0
_LARGEST_DOCUMENT = 1_048_576
_KINDS = frozenset({"RSA", "EC", "OKP"})

TokenKey = Mapping[str, Any]
"""A public key as a JWK."""


class TokenKeys:
    """Finds the public key of a token by its id.

    Keys are fetched when the first token arrives, and again when a token names an unknown key. If
    that fails, the keys fetched before stay in use.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._is_url = source.startswith(("http://", "https://"))
        if source.startswith("http://") and not is_loopback(urlsplit(source).hostname or ""):
            raise ConfigError(
                f"oidc.jwks is {source}: keys that arrive without TLS cannot be trusted; use https"
            )
        self._keys: dict[str | None, TokenKey] | None = None
        self._fetched_at = self._failed_at = -math.inf
        self._fetching: asyncio.Task[None] | None = None
        self.version = 0
        """A number that changes with the keys."""

    async def find(self, key_id: str | None) -> TokenKey | None:
        """Return a key by its id, or without one the only key; None if it is unknown.

        Raise TokenKeysUnavailableError if no keys could be fetched.
        """
        now = time.monotonic()
        if self._keys is None:
            await self._fetch(now)
        elif now - self._fetched_at > _FRESH_SECONDS:
            self._start_fetch(now)
        public_key = self._known(key_id)
        if public_key is None and now - self._fetched_at > _SECONDS_BETWEEN_FETCHES:
            await self._fetch(now)
            public_key = self._known(key_id)
        if self._keys is None:
            raise TokenKeysUnavailableError(self._source)
        return public_key

    def _known(self, key_id: str | None) -> TokenKey | None:
        keys = self._keys or {}
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(key_id)

    async def _fetch(self, now: float) -> None:
        """Fetch the keys together with others who wait for them, unless that has just failed."""
        fetching = self._start_fetch(now)
        if fetching is not None:
            # One request that ends early must not end the fetch of the others.
            await asyncio.shield(fetching)

    def _start_fetch(self, now: float) -> asyncio.Task[None] | None:
        if self._fetching is None and now - self._failed_at > _SECONDS_AFTER_FAILURE:
            self._fetching = asyncio.create_task(self._load())
        return self._fetching

    async def _load(self) -> None:
        try:
            text = await (self._download() if self._is_url else asyncio.to_thread(self._read))
            keys = _parse(text)
        except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
            self._failed_at = time.monotonic()
            log.warning(
                "token keys not fetched", source=self._source, error=str(error) or repr(error)
            )
        else:
            self._fetched_at, self._failed_at = time.monotonic(), -math.inf
            if keys != self._keys:
                self._keys = keys
                self.version += 1
        finally:
            self._fetching = None

    async def _download(self) -> bytes:
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, follow_redirects=False) as client,
            client.stream("GET", self._source) as response,
        ):
            response.raise_for_status()
            data = b""
            async for part in response.aiter_bytes():
                data += part
                if len(data) > _LARGEST_DOCUMENT:
                    raise ValueError(f"it has more than {_LARGEST_DOCUMENT} bytes")
            return data

    def _read(self) -> bytes:
        return Path(self._source).read_bytes()


def _parse(text: bytes) -> dict[str | None, TokenKey]:
    """Return the public keys of a JWKS by their ids; symmetric and encryption keys are left out."""
    document = json.loads(text)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JWKS: an object with a list of keys")
    keys: dict[str | None, TokenKey] = {
        key.get("kid"): key for key in listed if isinstance(key, dict) and _verifies(key)
    }
    if not keys:
        raise ValueError("it has no public key that verifies signatures")
    return keys


def _verifies(key: Mapping[str, Any]) -> bool:
    is_named = isinstance(key.get("kid"), str | None)
    return is_named and key.get("kty") in _KINDS and key.get("use", "sig") == "sig"
