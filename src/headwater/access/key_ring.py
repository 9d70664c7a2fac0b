"""All valid API keys: those of the settings, and those of the keys file, which is watched."""

from __future__ import annotations

import hmac
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from headwater.access.errors import KeyRequiredError
from headwater.access.key_format import digest_of
from headwater.access.keys_file import ApiKey, read_keys
from headwater.access.rate_limits import TokenBucket
from headwater.core.logging import log
from headwater.errors import ConfigError
from headwater.model.callers import Caller
from headwater.settings.schema import Settings

_POLL_SECONDS = 1.0


class KnownKey:
    """A valid key: its caller, its rate limit, and whether a request has used it before."""

    __slots__ = ("bucket", "caller", "digest", "expires_at", "is_used")

    def __init__(self, caller: Caller, digest: bytes, expires_at: float, rate: float) -> None:
        self.caller = caller
        self.digest = digest
        self.expires_at = expires_at
        self.bucket = TokenBucket(rate) if rate else None
        self.is_used = False


class KeyRing:
    """Finds the caller of a key.

    The file is looked at, at most once a second, when a request arrives. If it is missing or
    invalid after it was read, the keys read before stay valid, and the error is logged once.
    """

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._path = Path(settings.keys_file)
        self._rate = settings.http.rate_limit
        self._now = now
        configured = (
            KnownKey(Caller(f"api_key {number}"), digest_of(key.encode()), math.inf, self._rate)
            for number, key in enumerate(settings.api_keys, 1)
        )
        self._keys = {key.digest: key for key in configured}
        self._by_text: dict[bytes, KnownKey] = {}
        self._of_settings = tuple(self._keys.values())
        self._signature = _signature(self._path)
        self.next_look = time.monotonic() + _POLL_SECONDS
        """When ``look`` has something to do."""
        self.problem: str | None = None
        """Why the keys file could not be read when it last changed, or None."""
        self.is_empty = not self._of_settings and self._signature is None
        """Whether no key was ever configured; a file from which all keys were removed counts."""
        if self._signature is not None:
            self._take(read_keys(self._path))

    def find(self, key: bytes) -> KnownKey | None:
        """Return a valid key, or None if it is unknown; raise KeyRequiredError if it is expired."""
        # Only valid keys are in this dict, and its hashes are secret, so the time of a lookup
        # reveals nothing. It saves the digest, half of the time of admitting a request.
        held = self._by_text.get(key)
        if held is None:
            # Digests of unknown keys cannot be chosen, so the time of this lookup reveals nothing.
            digest = digest_of(key)
            held = self._keys.get(digest)
            if held is None or not hmac.compare_digest(held.digest, digest):
                return None
            self._by_text[key] = held
        if held.expires_at != math.inf and held.expires_at <= self._now():
            raise KeyRequiredError(f"the API key {held.caller.name!r} has expired; use another")
        return held

    def look(self, monotonic: float) -> None:
        """Read the file again if it has changed; this does nothing for a second after a look."""
        if monotonic < self.next_look:
            return
        self.next_look = monotonic + _POLL_SECONDS
        try:
            before, self._signature = self._signature, None
            signature = self._signature = _signature(self._path)
            if signature == before:
                return
            if signature is None:
                raise ConfigError(f"keys file {self._path} is missing; its keys stay valid")
            self._take(read_keys(self._path))
        except ConfigError as error:
            if self.problem != str(error):
                log.error("keys file not read", error=str(error))
            self.problem = str(error)
        else:
            self.problem = None
            log.info("keys file read", keys=len(self._keys) - len(self._of_settings))

    def _take(self, keys: dict[str, ApiKey]) -> None:
        """Replace the keys of the file; unchanged ones keep the state of their rate limits."""
        self.is_empty = False
        by_digest = {configured.digest: configured for configured in self._of_settings}
        for name, key in keys.items():
            expires = math.inf if key.expires is None else key.expires.timestamp()
            rate = self._rate if key.rate_limit is None else key.rate_limit
            new = KnownKey(key.caller(name), key.digest, expires, rate)
            old = self._keys.get(key.digest)
            if old is not None:
                new.is_used = old.is_used
                if old.bucket and old.bucket.rate == rate:
                    new.bucket = old.bucket
            by_digest[key.digest] = new
        self._keys = by_digest
        self._by_text.clear()


def has_api_keys(settings: Settings) -> bool:
    """Return whether the settings or the keys file have API keys."""
    return not KeyRing(settings).is_empty


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return values that change with a file, or None if it does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"keys file {path} cannot be read: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size, status.st_ino
