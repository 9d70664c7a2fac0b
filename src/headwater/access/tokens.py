"""Bearer tokens of an OpenID Connect issuer: JWTs, verified with the issuer's public keys."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.access.errors import KeyRequiredError
from headwater.access.key_format import digest_of
from headwater.access.token_keys import TokenKeys
from headwater.errors import ConfigError, MissingExtraError
from headwater.model.callers import ALL_SCOPES, Caller, CallerLimits
from headwater.model.values import LONGEST_NAME
from headwater.settings.groups import OidcSettings

try:
    import jwt
except ModuleNotFoundError as error:
    raise MissingExtraError("the verification of tokens (oidc.issuer)", "oidc") from error

# Signatures by a secret that both sides know are not among them: everyone has the public key.
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_LARGEST_CACHE = 10_000
_LONGEST_TOKEN = 16_384


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
            self._remember(digest, verified)
        return verified.caller

    def _remember(self, digest: bytes, verified: _Verified) -> None:
        if len(self._verified) >= _LARGEST_CACHE:
            self._verified.popitem(last=False)
        self._verified[digest] = verified

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
        # Users of an issuer may choose their names, and none may have the name of a key.
        return Caller(f"token {name}", allowed, self._limits(claims))

    def _limits(self, claims: Mapping[str, Any]) -> CallerLimits | None:
        claim = self._settings.tenant_claim
        if not claim:
            return None
        tenant = claims.get(claim)
        if not isinstance(tenant, str) or not tenant:
            raise _refused(f"the claim {claim!r} has no tenant")
        return CallerLimits(tenant=tenant)


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
