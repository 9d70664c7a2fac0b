"""The identity of a feature's handler: a hash of its code and of the options that matter.

The code is the function and what it reaches in the user's own files: functions, classes and
assignments at the top of a module. It is read without running it and written down in one form, so
comments, line numbers, the layout and the path of a file do not count, and every process that
loads the same file gets the same hash. Values of variables that code computes are not looked at,
because they may differ between processes; only constants that an enclosing function gave are.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from headwater.declarations.features import FeatureDef
from headwater.declarations.series import shape_of

BASE = "headwater_base_"
"""The beginning of the package in which code is loaded beside other code of the same names."""
_MOST_FUNCTIONS = 4096
_MOST_FILES = 256
_LENGTH = 16
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CONSTANTS = (bool, int, float, complex, str, bytes, date, time, timedelta, Decimal, Enum)

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_loaded: dict[str, str] = {}
"""The text of each file that declares features, as it was when it did."""


def remember_source(function: Callable[..., Any]) -> None:
    """Keep the text of the file of a function, which may be replaced while this process runs."""
    plain = inspect.unwrap(function)
    if isinstance(plain, FunctionType):
        file = plain.__code__.co_filename
        _loaded[file] = _text(file)


def definition_of(feature: FeatureDef) -> str:
    """Return the hash of the code and the options that make the values of a feature."""
    return _definition(
        feature.function,
        feature.codec.convert,
        (feature.entity.name, shape_of(feature).structure, feature.order, str(feature.ttl)),
        tuple(sorted(feature.triggers)),
        " ".join((feature.sql or "").split()),
        feature.default_text,
    )


@lru_cache(_MOST_FUNCTIONS)
def code_of(function: Callable[..., Any] | None) -> str:
    """Return the hash of the code of a function; empty for none."""
    return "" if function is None else _definition(function, None)


@lru_cache(_MOST_FUNCTIONS)
def own_code_of(function: Callable[..., Any], is_declared: Callable[[object], bool]) -> str:
    """Return the hash of the code of a function without that of other declarations it names.

    What a module has read from a file when it was loaded, such as a prompt, counts as code.
    """
    reached = _Reached(inspect.unwrap(function), is_declared, has_data=True)
    reached.add("", function)
    return sha256(repr(sorted(reached.parts.items())).encode()).hexdigest()[:_LENGTH]


@lru_cache(_MOST_FUNCTIONS)
def _definition(
    function: Callable[..., Any], convert: Callable[..., Any] | None, *options: object
) -> str:
    reached = _Reached(inspect.unwrap(function))
    reached.add("", function)
    reached.add("convert", convert)
    return sha256(repr((options, sorted(reached.parts.items()))).encode()).hexdigest()[:_LENGTH]


_READING = re.compile(r"\b(open|read\w*|load\w*)\(")
"""Calls that may read a file."""


def _data(value: object) -> str:
    """Return data that was read from a file; empty for other objects, which have an address."""
    return repr(value) if isinstance(value, str | bytes | dict | list | tuple) else ""


class OwnCode(NamedTuple):
    """The code that belongs to a function: in its folder or its package, and not installed."""

    folder: Path
    package: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> OwnCode:
        """Return the code that belongs to a function."""
        file = function.__code__.co_filename if isinstance(function, FunctionType) else "/"
        return cls(Path(file).parent, _package(function.__module__ or ""))

    def has(self, module: str, file: str) -> bool:
        """Return whether a module belongs to it."""
        path = Path(file)
        if path.is_relative_to(self.folder) and "site-packages" not in path.parts:
            return True
        # The features of the demo are in this package, whose other code is a library to them.
        return _package(module) == self.package != __name__.partition(".")[0]


def _package(module: str) -> str:
    """Return the package that a module is in, at the top of the user's code."""
    first, _, inner = module.partition(".")
    return (inner if first.startswith(BASE) else first).partition(".")[0]


class _Reached:
    """The parts of the user's own code that a function reaches, in one form, by their names."""

    def __init__(
        self,
        function: Callable[..., Any],
        is_left_out: Callable[[object], bool] = lambda _: False,
        *,
        has_data: bool = False,
    ) -> None:
        self._has_data = has_data
        self._own = OwnCode.of(function)
        self._is_left_out = is_left_out
        self._files: dict[str, int] = {}
        self._followed: set[tuple[str, str]] = set()
        self.parts: dict[str, str] = {}

    def add(self, name: str, value: object) -> None:
        """Add a value: a function with all that it reaches, and a constant as it is."""
        match value:
            case FunctionType():
                self._add_function(name, value)
            case MethodType():
                self.add(name, value.__func__)
            case partial():
                self.add(name, value.func)
                self.add(f"{name}()", (value.args, tuple(sorted(value.keywords.items()))))
            case _:
                self.parts[name] = _constant(value)

    def _add_function(self, name: str, function: FunctionType) -> None:
        code = function.__code__
        if name in self.parts:
            return
        file = _file(code.co_filename)
        node = file.function_at(code)
        # Decorators count by their own code, and the options of a feature that matter themselves.
        plain = None if node is None else _plain(node, decorated=False)
        self.parts[name] = _compiled(code) if plain is None else ast.unparse(plain)
        for variable, value in enclosed_variables(function).items():
            self.add(f"{name}.{variable}", value)
        if plain is not None:
            self._follow(code.co_filename, plain, function.__globals__)
        if (wrapped := function.__dict__.get("__wrapped__")) is not None:
            self.add(f"{name}*", wrapped)

    def _follow(self, path: str, code: ast.AST, variables: Mapping[str, Any]) -> None:
        """Add what the names in a piece of code mean at the top of its file."""
        file, number = _file(path), self._files.setdefault(path, len(self._files))
        for name in _names(code):
            key = f"{number}/{name}"
            if self._is_left_out(variables.get(name)):
                continue
            if name in file.bound and key not in self.parts:
                statements = [_plain(bound) for bound in file.bound[name]]
                self.parts[key] = text = "\n".join(map(ast.unparse, statements))
                if self._has_data and _READING.search(text):
                    self.parts[f"{key}="] = _data(variables.get(name))
                for statement in statements:
                    self._follow(path, statement, variables)
            elif name in file.imported:
                self._follow_import(variables.get(name), code, name)

    def _follow_import(self, value: object, code: ast.AST, name: str) -> None:
        if isinstance(value, ModuleType):
            for attribute in _attributes(code, name):
                self._follow_name(value, attribute)
        elif isinstance(value, FunctionType | type):
            module = sys.modules.get(value.__module__)
            if module is not None:
                self._follow_name(module, value.__qualname__.partition(".")[0])

    def _follow_name(self, module: ModuleType, name: str) -> None:
        """Add a name of another module, if that is the user's own.

        Modules may import each other, and one may only import the name, so each is followed once.
        """
        path = module.__dict__.get("__file__")
        if path is None or (path, name) in self._followed:
            return
        self._followed.add((path, name))
        if self._own.has(module.__name__, path):
            self._follow(path, ast.Name(name, ast.Load()), vars(module))


class _File(NamedTuple):
    """The code of a file: what its statements bind at the top, and its functions."""

    bound: Mapping[str, list[ast.stmt]]
    imported: frozenset[str]
    functions: Mapping[tuple[int, str], list[Function]]

    def function_at(self, code: CodeType) -> Function | None:
        """Return the function that was compiled to a code, unless that is not certain."""
        candidates = self.functions.get((code.co_firstlineno, code.co_name), ())
        return candidates[0] if len(candidates) == 1 else None


def _file(path: str) -> _File:
    return _parsed(_loaded.get(path) or _text(path))


def _text(path: str) -> str:
    linecache.checkcache(path)
    return "".join(linecache.getlines(path))


@lru_cache(_MOST_FILES)
def _parsed(text: str) -> _File:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell of a notebook, or no Python
        tree = ast.Module([], [])
    bound: defaultdict[str, list[ast.stmt]] = defaultdict(list)
    imported = set()
    for statement in tree.body:
        for name, is_imported in dict(_bindings(statement)).items():
            if is_imported:
                imported.add(name)
            else:
                bound[name].append(statement)
    return _File(bound, frozenset(imported), _functions(tree))


def _functions(tree: ast.Module) -> dict[tuple[int, str], list[Function]]:
    functions: defaultdict[tuple[int, str], list[Function]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            functions[node.lineno, "<lambda>"].append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.decorator_list[0] if node.decorator_list else node
            functions[first.lineno, node.name].append(node)
    return functions


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, bool]]:
    """Yield the names that a statement at the top of a file binds, and whether by an import."""
    if isinstance(statement, _DOCUMENTED):
        yield statement.name, False
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, False
        elif isinstance(node, _DOCUMENTED):
            yield node.name, False
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0], True


def _names(node: ast.AST) -> list[str]:
    """Return the names that code uses, each once, without those of builtins."""
    names = (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return [name for name in dict.fromkeys(names) if name not in vars(builtins)]


def _attributes(node: ast.AST, name: str) -> Iterator[str]:
    """Yield the attributes of a variable that code uses."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == name
        ):
            yield inner.attr


def _plain(node: ast.AST, *, decorated: bool = True) -> ast.Module:
    """Return code without layout, comments and docstrings; a copy."""
    tree = ast.parse(ast.unparse(node))
    if not decorated and isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        tree.body[0].decorator_list = []
    for inner in ast.walk(tree):
        if isinstance(inner, _DOCUMENTED) and ast.get_docstring(inner, clean=False) is not None:
            inner.body = inner.body[1:] or [ast.Pass()]
    return tree


def _compiled(code: CodeType) -> str:
    """Return the instructions of code whose text is not known; other Pythons make others."""
    parts = [
        _compiled(constant) if isinstance(constant, CodeType) else _constant(constant)
        for constant in code.co_consts
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_flags, *parts))


def enclosed_variables(function: FunctionType) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses and that have a value."""
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has no value yet
            variables[name] = cell.cell_contents
    return variables


def _constant(value: object) -> str:
    """Return a constant as text; of anything else only its class."""
    if value is None or isinstance(value, _CONSTANTS):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return type(value).__qualname__
