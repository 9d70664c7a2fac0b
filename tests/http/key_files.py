"""Keys in a keys file, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.access.key_format import generate_api_key, hash_of
from headwater.access.keys_file import ApiKey, changing_keys


def add_key(path: Path, name: str, *scopes: Any, **fields: Any) -> str:
    """Add a key to a keys file and return it."""
    key = generate_api_key(name)
    with changing_keys(path) as keys:
        keys[name] = ApiKey(hash=hash_of(key), scopes=frozenset(scopes), **fields)
    return key


def sent(key: str) -> dict[str, str]:
    """Return the header that sends a key."""
    return {"X-API-Key": key}
