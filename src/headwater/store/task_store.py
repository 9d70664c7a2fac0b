"""The store of a features file as tasks open it, wherever they run."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.store.base_code import kept_code, module_name
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store, locate

if TYPE_CHECKING:
    from headwater.engine.engine import Engine

_loaded: tuple[Path, Mapping[str, str]] = (Path(), {})
"""The code that this process loaded last, and from where."""
_copies: dict[str, TemporaryDirectory[str]] = {}
"""Folders with code that this machine did not have, by a hash of it."""


class FeaturesFile(msgspec.Struct, frozen=True):
    """A features file that travels along with tasks: its text, the user's modules, the settings.

    Neither data files nor installed packages travel.
    """

    file: str
    features: str = ""
    """The path of the file below the folder that its modules are imported from."""
    code: Mapping[str, str] = {}
    settings: Settings | None = None

    @classmethod
    def of(cls, file: str | Path, settings: Settings) -> FeaturesFile:
        """Return a features file that is loaded, with its present code."""
        kept = kept_code(file)
        return cls(str(locate(file).file), kept.features, kept.code, settings)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        """Load the features file, and open its store for the code inside."""
        async with await self.load() as store:
            yield await runtime_of(store).open()

    async def load(self) -> FeatureStore:
        """Load the features file, and return its store with the settings of the sender."""
        global _loaded
        root = self._root()
        if (root, self.code) != _loaded:
            # A process that runs many tasks may have loaded other code of the same names.
            for path in _loaded[1]:
                sys.modules.pop(module_name(path), None)
            _loaded = root, self.code
        store = load_store(root / self.features if self.code else self.file)
        if self.settings is not None:
            await runtime_of(store).rebind(self.settings, runtime_of(store).clock)
        return store

    def _root(self) -> Path:
        """Return the folder of the code if this machine has the same, or else of a copy."""
        root = Path(self.file).parents[self.features.count("/")]
        if all(_has(root / path, text) for path, text in self.code.items()):
            return root
        name = sha256(msgspec.json.encode(self.code)).hexdigest()
        if name not in _copies:
            _copies[name] = copy = TemporaryDirectory(prefix="headwater-code-")
            for path, text in self.code.items():
                file = Path(copy.name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        return Path(_copies[name].name)


def _has(file: Path, text: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False
