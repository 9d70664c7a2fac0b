"""API keys of a server under load: named, with scopes, in a keys file, as in production."""

from collections.abc import Mapping
from pathlib import Path

from headwater.access.key_format import generate_api_key, hash_of
from headwater.access.keys_file import ApiKey, changing_keys
from headwater.model.callers import AccessScope


class ServerKeys:
    """The keys file of one server."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "keys.toml"

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment variables of a server that accepts these keys."""
        return {"HEADWATER_KEYS_FILE": str(self._path)}

    def add(self, name: str, *scopes: AccessScope) -> Mapping[str, str]:
        """Add a key; return the headers that send it."""
        key = generate_api_key(name)
        with changing_keys(self._path) as keys:
            keys[name] = ApiKey(hash=hash_of(key), scopes=frozenset(scopes))
        return {"X-API-Key": key}
