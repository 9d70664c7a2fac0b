"""The user's code of a moment: kept as texts, and loaded beside other code of the same names.

Both codes have modules of the same names, and functions of both run in one process. So the modules
of base code are imported under a prefix of their own, from the texts or from another folder, and
an import in them finds those modules, also if it runs later.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from io import StringIO
from itertools import count
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple

from headwater.contexts.evaluation.cohort import Cohort
from headwater.declarations import graph
from headwater.declarations.definitions import BASE
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeaturesFileError
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import FeaturesSource, explained, locate, only_store

_HEADWATER = __name__.partition(".")[0]
_numbers = count(1)


class KeptCode(NamedTuple):
    """The texts of a features file and of the user's modules, by their paths below one folder."""

    features: str
    code: Mapping[str, str]


def kept_code(target: str | Path) -> KeptCode:
    """Return the code of a features file that is loaded, with the modules that it may import.

    These are the loaded ones, and those that an import statement names which has not yet run. What
    is installed is not kept, and neither are data files.
    """
    source = locate(target)
    root, waiting = source.root, [source.file]
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and Path(file) in _files(root, name):
            waiting.append(Path(file))
    code: dict[str, str] = {}
    while waiting:
        file = waiting.pop()
        path = PurePosixPath(file.relative_to(root).as_posix())
        if str(path) not in code and file.is_file():
            with tokenize.open(file) as text:
                code[str(path)] = text.read()
            for name in _imported(code[str(path)], path):
                waiting += _files(root, name)
    return KeptCode(source.file.relative_to(root).as_posix(), dict(sorted(code.items())))


def _files(root: Path, name: str) -> list[Path]:
    """Return the files that the user's module of a name and the packages above it may be in."""
    parts = name.split(".")
    names = [".".join(parts[:at]) for at in range(1, len(parts) + 1)]
    return [root / place for name in names for place in _places(name)] if _is_own(name) else []


def _is_own(name: str) -> bool:
    """Return whether a module may be the user's: Python's own are found before any other."""
    top = name.partition(".")[0]
    return top != _HEADWATER and top not in sys.stdlib_module_names


def _imported(text: str, path: PurePosixPath) -> Iterator[str]:
    """Yield the names that the import statements of a file may mean modules by."""
    with suppress(SyntaxError):  # loading such a file says so
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = path.parts[: -node.level] if node.level else ()
                module = ".".join([*above, *([node.module] if node.module else [])])
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)


def _places(name: str) -> tuple[str, str]:
    """Return the files that a module may be in."""
    folder = name.replace(".", "/")
    return f"{folder}.py", f"{folder}/__init__.py"


def module_name(file: str) -> str:
    """Return the name of the module in a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def load_base(base: Cohort | Path) -> FeatureStore:
    """Return the store of the code that a cohort has, or of a features file elsewhere.

    Raises:
        FeaturesFileError: The code cannot be loaded.
    """
    if isinstance(base, Path):
        source = locate(base)
        texts = _Texts(source.root, None)
    else:
        folder, features = Path(base.path).absolute(), base.header.features
        if features not in base.header.code:
            raise FeaturesFileError(
                f"cohort {base.path} has no code, because it was frozen from a store that no file "
                "declares; pass --base PATH with the former features file"
            )
        source = FeaturesSource(folder / features, module_name(features), folder)
        texts = _Texts(folder, base.header.code)
    try:
        store = _load(source, texts)
    except DeclarationError as error:
        if isinstance(base, Path):
            raise
        raise FeaturesFileError(
            f"{error.problem}; this is the code that cohort {base.path} keeps, which is without "
            "data files: pass --base PATH with the features file of that time",
            error.location,
        ) from error
    graph.check(runtime_of(store).registry.features)
    return store


def _load(source: FeaturesSource, texts: _Texts) -> FeatureStore:
    prefix = f"{BASE}{next(_numbers)}"
    root = ModuleType(prefix)
    root.__path__ = []
    sys.modules[prefix] = root
    finder = _Finder(prefix, texts)
    sys.meta_path.insert(0, finder)
    name = module_name(source.file.relative_to(source.root).as_posix())
    try:
        with explained(source):
            module = import_module(f"{prefix}.{name}")
        return only_store(module, source.file)
    except BaseException:
        sys.meta_path.remove(finder)
        for loaded in [each for each in sys.modules if each.partition(".")[0] == prefix]:
            del sys.modules[loaded]
        raise


class _Texts(NamedTuple):
    """The texts of modules: those of a mapping, or else of the files below the folder."""

    folder: Path
    code: Mapping[str, str] | None

    def read(self, path: str) -> str | None:
        """Return the text of a file; None if there is none."""
        if self.code is not None:
            return self.code.get(path)
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            tokenize.open(self.folder / path) as text,
        ):
            return text.read()
        return None

    def has_folder(self, path: str) -> bool:
        """Return whether there are modules below a folder, which need no ``__init__.py``."""
        if self.code is not None:
            return any(file.startswith(f"{path}/") for file in self.code)
        return next((self.folder / path).glob("*.py"), None) is not None


class _Finder(MetaPathFinder):
    """Finds the modules of base code below their prefix."""

    def __init__(self, prefix: str, texts: _Texts) -> None:
        self._prefix = prefix
        self._texts = texts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(".")
        return self.spec(fullname, name) if prefix == self._prefix and name else None

    def spec(self, fullname: str, name: str) -> ModuleSpec | None:
        """Return the spec of a module of the code; None if that has no such module."""
        module, package = _places(name)
        for place in (package, module):
            text = self._texts.read(place)
            if text is not None:
                file = str(self._texts.folder / place)
                loader = _Loader(file, text, self.importing, is_kept=self._texts.code is not None)
                return spec_from_loader(fullname, loader, origin=file, is_package=place == package)
        if self._texts.has_folder(name.replace(".", "/")):
            return ModuleSpec(fullname, None, is_package=True)
        return None

    def importing(
        self,
        name: str,
        variables: Mapping[str, Any] | None = None,
        locals_: Mapping[str, Any] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import as a statement does, the modules of base code from there."""
        top = name.partition(".")[0]
        if level or not _is_own(name) or self.spec(top, top) is None:
            return builtins.__import__(name, variables, locals_, names or (), level)
        module = builtins.__import__(f"{self._prefix}.{name}", variables, locals_, names or (), 0)
        return module if names else sys.modules[f"{self._prefix}.{top}"]


class _Loader(Loader):
    """Runs the text of a module, whose imports find the modules of the same code."""

    def __init__(
        self, file: str, text: str, importing: Callable[..., ModuleType], *, is_kept: bool
    ) -> None:
        self._file = file
        self._text = text
        self._importing = importing
        self._is_kept = is_kept

    def exec_module(self, module: ModuleType) -> None:
        if self._is_kept:
            # Functions are hashed by their text, and no file has it.
            lines = StringIO(self._text).readlines()
            linecache.cache[self._file] = (len(self._text), None, lines, self._file)
        module.__file__ = self._file
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": self._importing}
        exec(compile(self._text, self._file, "exec", dont_inherit=True), vars(module))
