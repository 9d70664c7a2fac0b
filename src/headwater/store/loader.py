"""From the path of a features file to the one store that it declares."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

from headwater.errors import DeclarationError, FeaturesFileError
from headwater.errors.hints import Location
from headwater.features.user_calls import Raising
from headwater.store.feature_store import FeatureStore


def load_store(path: str | Path) -> FeatureStore:
    """Runs a features file and gives its store, with all its references checked."""
    file = Path(path).absolute()
    if not file.is_file():
        raise FeaturesFileError(
            f"there is no features file {str(path)!r}; name the Python file that declares your "
            "features, or set HEADWATER_FEATURES to it"
        )
    store = _only_store(_run(file), file)
    store.graph()
    return store


class FeaturesModule(ModuleType):
    """What a features file becomes; a later load of a file of the same name replaces it."""


def _run(file: Path) -> FeaturesModule:
    module = FeaturesModule(_module_name(file))
    module.__file__ = str(file)
    # Registered before it runs, as an import does: annotations are resolved through it, and a
    # file that it imports may import it back.
    sys.modules[module.__name__] = module
    with ExitStack() as undo:
        undo.callback(sys.modules.pop, module.__name__, None)
        _execute(file, module)
        undo.pop_all()
    return module


def _execute(file: Path, module: FeaturesModule) -> None:
    """Runs the file; what goes wrong is told with file and line, unless the error does so."""
    try:
        with Raising(partial(_failed, file=file)), _importable(file.parent):
            # Compiled here and not imported: Python's own cache takes a file that was edited twice
            # within a second for unchanged.
            code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
            exec(code, vars(module))
    except SystemExit as error:
        raise FeaturesFileError(
            "the file ends the program while it is loaded; put what it runs under "
            "`if __name__ == '__main__':`",
            _place(error, file),
        ) from error
    except DeclarationError as error:
        if error.location is not None:
            raise
        raise FeaturesFileError(error.problem, _place(error, file)) from error


def _module_name(file: Path) -> str:
    """The file's own name, unless a module of that name is there or would be hidden by it."""
    name = file.stem
    there = sys.modules.get(name)
    taken = name in sys.stdlib_module_names or not isinstance(there, FeaturesModule | None)
    return f"headwater_features_{name}" if taken else name


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _failed(error: Exception, file: Path) -> FeaturesFileError:
    """What went wrong, with file and line."""
    if isinstance(error, SyntaxError):
        location = Location(error.filename or str(file), error.lineno or 1)
        return FeaturesFileError(f"{type(error).__name__}: {error.msg}", location)
    return FeaturesFileError(f"{type(error).__name__}: {error}", _place(error, file))


def _place(error: BaseException, file: Path) -> Location:
    """The innermost line of the file, or of a file beside it, that the error passed through."""
    place = Location(str(file), 1)
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).parent == file.parent:
            place = Location(frame.filename, frame.lineno or 1)
    return place


def _only_store(module: ModuleType, file: Path) -> FeatureStore:
    stores = {
        name: value for name, value in vars(module).items() if isinstance(value, FeatureStore)
    }
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
