"""The text of API keys: new ones, their hashes, and keys that are easy to guess."""

from __future__ import annotations

import hashlib
import re
import secrets
import string

from headwater.errors import ConfigError, InvalidInputError

SHORTEST_KEY = 16

_ALPHABET = string.ascii_letters + string.digits
# 238 bits: a key cannot be guessed, so a fast hash protects it.
_RANDOM_CHARACTERS = 40
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_PART = 16
_GENERATED = re.compile(
    rb"hw_[A-Za-z0-9-]{1,%d}_[A-Za-z0-9]{%d}" % (_NAME_PART, _RANDOM_CHARACTERS)
)
_FEWEST_DISTINCT = 6
_PLACEHOLDERS = (
    *("changeme", "change-me", "change_me", "replaceme", "replace-me", "replace_me", "password"),
    *("secret", "example", "placeholder", "yourkey", "your-key", "your_key", "your-api-key"),
    *("your_api_key", "insecure", "default", "dummy", "todo", "test", "xxx", "123456", "qwerty"),
)


def check_key_name(name: str) -> None:
    """Raise InvalidInputError if a text cannot be the name of a key."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a key; use 1 to 64 of the characters A-Z, a-z, 0-9, "
            "_ and -"
        )


def generate_api_key(name: str) -> str:
    """Return a new key; its prefix makes keys that were published by mistake easy to find."""
    part = name[:_NAME_PART].replace("_", "-")
    return f"hw_{part}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARACTERS))


def is_generated(key: bytes) -> bool:
    """Return whether a key has the form of a generated one, which cannot be guessed."""
    return _GENERATED.fullmatch(key) is not None


def digest_of(key: bytes) -> bytes:
    """Return the digest under which a key is found."""
    return hashlib.sha256(key).digest()


def hash_of(key: str) -> str:
    """Return the hash of a key as the keys file holds it."""
    return f"sha256:{digest_of(key.encode()).hex()}"


def check_strength(key: str) -> None:
    """Raise ConfigError if a key is easy to guess."""
    lowered = key.lower()
    if len(key) < SHORTEST_KEY:
        reason = f"has {len(key)} characters, fewer than {SHORTEST_KEY}"
    elif len(set(lowered)) < _FEWEST_DISTINCT:
        reason = f"has fewer than {_FEWEST_DISTINCT} different characters"
    elif lowered.startswith(_PLACEHOLDERS):
        beginning = next(text for text in _PLACEHOLDERS if lowered.startswith(text))
        reason = f"looks like a placeholder: it begins with {beginning!r}"
    else:
        return
    raise ConfigError(
        f"a key in HEADWATER_API_KEY {reason}, so other machines could guess it; generate one with "
        "`headwater keys create NAME --scope admin` or `openssl rand -hex 32`, or listen on "
        "127.0.0.1"
    )
