"""Bearer tokens of an OpenID Connect issuer: JWTs, verified with the issuer's public keys."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from headwater.access.errors import KeyRequiredError, TokenKeysUnavailableError
from headwater.access.key_format import digest_of
from headwater.access.local_requests import is_loopback
from headwater.core.http_urls import without_credentials
from headwater.core.logging import log
from headwater.core.masking import mask_address
from headwater.errors import ConfigError, MissingExtraError
from headwater.model.callers import ALL_SCOPES, Caller, CallerLimits
from headwater.model.values import LONGEST_NAME
from headwater.settings.groups import OidcSettings

try:
    import jwt
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    from headwater.records.ed25519 import is_weak
except ModuleNotFoundError as error:
    raise MissingExtraError("the verification of tokens (oidc.issuer)", "oidc") from error

# Signatures by a secret that both sides know are not among them: everyone has the public key.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_LARGEST_CACHE = 10_000
_LONGEST_TOKEN = 16_384
_FRESH_SECONDS = 600.0
"""How long keys are used before they are fetched again in the background."""
_SECONDS_BETWEEN_FETCHES = 30.0
"""Tokens with unknown key ids cause at most one fetch in this time."""
_SECONDS_AFTER_FAILURE = 5.0
_TIMEOUT_SECONDS = 5.0
_LARGEST_DOCUMENT = 1_048_576
_SHORTEST_RSA = 2_048
"""Bits of a key that nobody can factor; RFC 7518 requires as many."""

TokenKey = Mapping[str, Any]
"""A public key as a JWK."""


class TokenKeys:
    """Finds the public key of a token by its id.

    Keys are fetched when the first token arrives, and again when a token names an unknown key. If
    that fails, the keys fetched before stay in use.
    """

    def __init__(self, source: str) -> None:
        self._url = _url(source)
        self._path = Path(source)
        self._shown = mask_address(source)
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
        public_key = self._key(key_id)
        if public_key is None and now - self._fetched_at > _SECONDS_BETWEEN_FETCHES:
            await self._fetch(now)
            public_key = self._key(key_id)
        if self._keys is None:
            raise TokenKeysUnavailableError
        return public_key

    def _key(self, key_id: str | None) -> TokenKey | None:
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
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                keys = _parse(await self._text())
        except (OSError, ValueError, RecursionError, httpx.HTTPError) as error:
            self._failed_at = time.monotonic()
            # The text of an error of the system has the name of the file, which may be a URL.
            reason = error.strerror if isinstance(error, OSError) else str(error)
            if isinstance(error, TimeoutError):
                reason = f"they were not read within {_TIMEOUT_SECONDS:g} s"
            log.warning("token keys not fetched", source=self._shown, error=reason or repr(error))
        else:
            self._fetched_at, self._failed_at = time.monotonic(), -math.inf
            if keys != self._keys:
                self._keys = keys
                self.version += 1
        finally:
            self._fetching = None

    async def _text(self) -> bytes:
        if self._url is None:
            return await asyncio.to_thread(self._path.read_bytes)
        url, auth = without_credentials(self._url)
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, follow_redirects=False) as client,
            client.stream("GET", url, auth=auth) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"the server answered {response.status_code}")
            data = b""
            async for part in response.aiter_bytes():
                data += part
                if len(data) > _LARGEST_DOCUMENT:
                    raise ValueError(f"it has more than {_LARGEST_DOCUMENT} bytes")
            return data


def _url(source: str) -> httpx.URL | None:
    """Return the URL of keys, or None for a file; raise ConfigError if they cannot be trusted."""
    if "://" not in source:
        return None
    try:
        url = httpx.URL(source)
    except httpx.InvalidURL:  # without its text, which may be a part of a password
        raise ConfigError("oidc.jwks is not a valid URL; write https://HOST/PATH") from None
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.host)):
        raise ConfigError(
            f"oidc.jwks is {mask_address(source)}: keys that arrive without TLS cannot be trusted; "
            "use https, or the path of a file"
        )
    return url


def _parse(text: bytes) -> dict[str | None, TokenKey]:
    """Return the public keys of a JWKS by their ids, except keys that verify no signatures."""
    document = json.loads(text)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JWKS: an object with a list of keys")
    keys: dict[str | None, TokenKey] = {
        key.get("kid"): key
        for key in listed
        if isinstance(key, dict)
        and isinstance(key.get("kid"), str | None)
        and key.get("use", "sig") == "sig"
        and _is_usable(key)
    }
    if not keys:
        raise ValueError("it has no public key that verifies signatures")
    return keys


def _is_usable(key: TokenKey) -> bool:
    """Return whether a key is a valid public key of an algorithm that can be allowed."""
    try:
        made = jwt.PyJWK(dict(key))
    except (jwt.PyJWTError, TypeError, ValueError, KeyError):
        return False
    if isinstance(made.key, Ed25519PublicKey) and is_weak(made.key.public_bytes_raw()):
        return False
    if isinstance(made.key, RSAPublicKey) and made.key.key_size < _SHORTEST_RSA:
        return False
    return made.algorithm_name in ALGORITHMS


class _Verified(NamedTuple):
    caller: Caller
    expires_at: float


class Tokens:
    """Turns tokens into callers; a verified token is remembered until it expires."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._algorithms = _algorithms(settings.algorithms)
        for name, value in {"audience": settings.audience, "jwks": settings.jwks}.items():
            if not value:
                raise ConfigError(
                    f"oidc.issuer is set, but oidc.{name} is empty; set both, or tokens cannot be "
                    "verified"
                )
        self._keys = TokenKeys(settings.jwks)
        self._version = 0
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()

    async def caller(self, token: bytes) -> Caller:
        """Return the caller of a token; raise KeyRequiredError if it is invalid."""
        digest, now = digest_of(token), time.time()
        if self._version != self._keys.version:
            # Tokens signed with keys that are gone have to be refused.
            self._version = self._keys.version
            self._verified.clear()
        verified = self._verified.get(digest)
        if verified is None or verified.expires_at <= now:
            verified = await self._verify(token)
            if len(self._verified) >= _LARGEST_CACHE:
                self._verified.popitem(last=False)
            self._verified[digest] = verified
        return verified.caller

    async def _verify(self, token: bytes) -> _Verified:
        settings = self._settings
        try:
            key = await self._key(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise _refused("it has expired; request a new one") from error
        except jwt.PyJWTError as error:
            raise _refused(str(error)) from error
        return _Verified(self._caller(claims), float(claims["exp"]) + settings.leeway)

    async def _key(self, token: bytes) -> jwt.PyJWK:
        """Return the key that a token names, for the algorithm that it names."""
        if len(token) > _LONGEST_TOKEN:
            raise _refused(f"it is longer than {_LONGEST_TOKEN} characters")
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise _refused(f"its algorithm is not among {', '.join(self._algorithms)}")
        key = await self._keys.find(key_id)
        if key is None:
            raise _refused("it is signed with a key that the issuer does not publish")
        if key.get("alg", algorithm) != algorithm:
            raise _refused("its algorithm is not that of its key")
        # Raises an error if the algorithm does not fit the type of the key.
        return jwt.PyJWK(dict(key), algorithm)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        settings = self._settings
        name = claims.get(settings.name_claim)
        if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= LONGEST_NAME):
            raise _refused(
                f"the claim {settings.name_claim!r} has no name of the caller: a printable text of "
                f"at most {LONGEST_NAME} characters"
            )
        given = claims.get(settings.scope_claim, [])
        words = given.split() if isinstance(given, str) else given
        prefix = settings.scope_prefix
        scopes = {
            word.removeprefix(prefix)
            for word in (words if isinstance(words, list) else [])
            if isinstance(word, str) and word.startswith(prefix)
        }
        allowed = frozenset(scope for scope in ALL_SCOPES if scope in scopes)
        limits = CallerLimits(
            tenant=_claimed(claims, settings.tenant_claim, "tenant"),
            ids=frozenset({_claimed(claims, settings.id_claim, "id")}) - {""} or None,
        )
        # Users of an issuer may choose their names, and none may have the name of a key.
        return Caller(f"token {name}", allowed, None if limits == CallerLimits() else limits)


def _claimed(claims: Mapping[str, Any], claim: str, limit: str) -> str:
    """Return the text of a claim that limits a token, or an empty one if none is configured."""
    text = claims.get(claim) if claim else ""
    if not isinstance(text, str) or (claim and not text):
        raise _refused(f"the claim {claim!r} has no {limit}")
    return text


def _refused(reason: str) -> KeyRequiredError:
    return KeyRequiredError(f"the token is not valid: {reason}", error="invalid_token")


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    for name in names:
        if name not in ALGORITHMS:
            raise ConfigError(
                f"oidc.algorithms names {name!r}; allowed are {', '.join(ALGORITHMS)}"
            )
    if not names:
        raise ConfigError(f"oidc.algorithms is empty; name some of {', '.join(ALGORITHMS)}")
    return names
