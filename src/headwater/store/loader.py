"""Load a features file, by path or by module name, and return the store that it declares."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec

from headwater.core.logging import log
from headwater.declarations import graph
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeaturesFileError
from headwater.errors.hints import Location
from headwater.features.user_calls import Raising
from headwater.store.feature_store import FeatureStore


def load_store(target: str | Path) -> FeatureStore:
    """Run a features file and return its store, with all references checked.

    ``target`` is a path such as ``myapp/features.py`` or a module such as ``myapp.features``. A
    file in a package is loaded under its dotted name, so its relative imports work.
    """
    source = locate(target)
    store = only_store(_load(source), source.file)
    graph.check(runtime_of(store).registry.features)
    runtime_of(store).file = str(source.file)
    return store


class FeaturesSource(msgspec.Struct, frozen=True):
    """A features file, the name that it is imported under, and the folder to import it from."""

    file: Path
    name: str
    root: Path

    @property
    def is_in_package(self) -> bool:
        return "." in self.name or self.file.name == "__init__.py"

    def contains(self, file: Path) -> bool:
        """Return whether a file belongs to the same folder or package."""
        package = self.root / self.name.partition(".")[0]
        return file.parent == self.file.parent or (
            self.is_in_package and file.is_relative_to(package)
        )


def locate(target: str | Path) -> FeaturesSource:
    """Return the features file that a path or a module name stands for."""
    file = Path(target).absolute()
    if file.is_file():
        return _in_package(file)
    source = _find_module(str(target))
    if source is None:
        raise FeaturesFileError(
            f"there is no features file {str(target)!r}; name the Python file or module that "
            "declares your features, or set HEADWATER_FEATURES to it"
        )
    return source


def _in_package(file: Path) -> FeaturesSource:
    """Return a file with its dotted name: a folder with an ``__init__.py`` is a package."""
    root, parts = file.parent, [] if file.stem == "__init__" else [file.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    name = ".".join(parts)
    return FeaturesSource(file, name if root != file.parent else _top_level_name(file), root)


def _top_level_name(file: Path) -> str:
    """Return the file's stem, or a longer name if it would replace another module."""
    name = file.stem
    existing = sys.modules.get(name)
    is_taken = name in sys.stdlib_module_names or not isinstance(existing, FeaturesModule | None)
    return f"headwater_features_{name}" if is_taken else name


def _find_module(name: str) -> FeaturesSource | None:
    """Return the file of a module below the working directory or on the path, if there is one."""
    top, *inner = name.split(".")
    if name.endswith(".py") or not all(part.isidentifier() for part in (top, *inner)):
        return None
    with _importable(Path.cwd()):
        spec = find_spec(top)
    if spec is None:
        return None
    if not inner:
        return _in_package(Path(spec.origin)) if spec.has_location and spec.origin else None
    for folder in map(Path, spec.submodule_search_locations or ()):
        module = folder.joinpath(*inner)
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.is_file():
                return FeaturesSource(file, name, folder.parent)
    return None


class FeaturesModule(ModuleType):
    """The module of a features file; loading another file of the same name replaces it."""


def _load(source: FeaturesSource) -> ModuleType:
    _forget_other_files(source)
    with _importable(source.root):
        parent, _, child = source.name.rpartition(".")
        if parent:
            with explained(source):
                import_module(parent)
        existing = sys.modules.get(source.name)
        if source.is_in_package and existing is not None:
            _check_same_file(existing, source)
            module = existing  # the package imports it, or it was loaded before
        else:
            module = _run(source)
            if parent:
                setattr(sys.modules[parent], child, module)
        _check_loaded_once(source)
    return module


def _forget_other_files(source: FeaturesSource) -> None:
    """Remove other features files, and this one's former names, so that no import finds one."""
    for name, module in list(sys.modules.items()):
        is_top_level = isinstance(module, FeaturesModule) and not module.__package__
        if is_top_level and not (name == source.name and _is_from(module, source.file.stat())):
            del sys.modules[name]


def _run(source: FeaturesSource) -> FeaturesModule:
    module = FeaturesModule(source.name)
    module.__file__ = str(source.file)
    module.__spec__ = spec = spec_from_file_location(source.name, source.file)
    module.__package__ = spec.parent if spec else None
    if spec and spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations
    # Registered before it runs, as an import does: annotations are resolved through it, and a
    # file that it imports may import it back.
    sys.modules[module.__name__] = module
    with ExitStack() as undo:
        undo.callback(sys.modules.pop, module.__name__, None)
        with explained(source):
            # Compiled here and not imported: Python's bytecode cache does not notice a second
            # edit within a second.
            code = compile(source.file.read_bytes(), str(source.file), "exec", dont_inherit=True)
            exec(code, vars(module))
        undo.pop_all()
    if any(runtime_of(store).was_opened for store in _stores(module).values()):
        # Each command and each process loads the file, and would do the same again.
        log.warning(
            "features file used its store while it was loaded",
            file=str(source.file),
            hint="move that code under `if __name__ == '__main__':`",
        )
    return module


@contextmanager
def explained(source: FeaturesSource) -> Iterator[None]:
    """Raise errors of the file's code as FeaturesFileError with file and line."""
    try:
        with Raising(partial(_as_file_error, source=source)):
            yield
    except SystemExit as error:
        raise FeaturesFileError(
            "the file ends the program while it is loaded; move that code under "
            "`if __name__ == '__main__':`",
            _location(error, source),
        ) from error
    except DeclarationError as error:
        if error.location is not None:
            raise
        raise FeaturesFileError(error.problem, _location(error, source)) from error


def _check_same_file(existing: ModuleType, source: FeaturesSource) -> None:
    if not _is_from(existing, source.file.stat()):
        file = vars(existing).get("__file__")
        raise FeaturesFileError(
            f"the module {source.name!r} is already imported from {file}; rename one of the "
            "packages, or start from another folder",
            Location(str(source.file), 1),
        )


def _check_loaded_once(source: FeaturesSource) -> None:
    """Refuse a file that its own code also imported under another name: it has two stores."""
    file = source.file.stat()
    names = [
        name
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and _is_from(module, file)
    ]
    if len(names) > 1:
        for name in names:
            if isinstance(sys.modules[name], FeaturesModule):
                del sys.modules[name]
        raise FeaturesFileError(
            f"the file is loaded twice, as the modules {' and '.join(sorted(names))}, and so has "
            f"two stores; import it as {source.name} everywhere",
            Location(str(source.file), 1),
        )


def _is_from(module: ModuleType, file: os.stat_result) -> bool:
    """Return whether a module was loaded from a file, also through a symbolic link."""
    path = vars(module).get("__file__")
    if not isinstance(path, str):
        return False
    try:
        # There are thousands of modules, and to resolve a path takes ten times as long.
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _as_file_error(error: Exception, source: FeaturesSource) -> FeaturesFileError:
    if isinstance(error, SyntaxError):
        location = Location(error.filename or str(source.file), error.lineno or 1)
        return FeaturesFileError(f"{type(error).__name__}: {error.msg}", location)
    return FeaturesFileError(f"{type(error).__name__}: {error}", _location(error, source))


def _location(error: BaseException, source: FeaturesSource) -> Location:
    """Return the innermost line of the file, its folder or its package that raised the error."""
    location = Location(str(source.file), 1)
    for frame in traceback.extract_tb(error.__traceback__):
        if source.contains(Path(frame.filename)):
            location = Location(frame.filename, frame.lineno or 1)
    return location


def _stores(module: ModuleType) -> dict[str, FeatureStore]:
    return {name: value for name, value in vars(module).items() if isinstance(value, FeatureStore)}


def only_store(module: ModuleType, file: Path) -> FeatureStore:
    stores = _stores(module)
    if not stores:
        raise FeaturesFileError(
            "the file has no FeatureStore; write `store = FeatureStore()` at its top level",
            Location(str(file), 1),
        )
    if len({id(store) for store in stores.values()}) > 1:
        raise FeaturesFileError(
            f"the file has several stores ({', '.join(stores)}); declare everything on one, since "
            "one process serves one store",
            Location(str(file), 1),
        )
    return next(iter(stores.values()))
