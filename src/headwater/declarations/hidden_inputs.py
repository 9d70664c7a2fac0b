"""Time and chance in the code of functions, which a computation of the past cannot repeat."""

from __future__ import annotations

import ast
import inspect
import os
import random
import secrets
import sys
import time
import uuid
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from headwater.declarations.code_uses import enclosed_variables, source_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors.hints import Location

_CLOCK = {time.time, time.time_ns}
_CLOCK_OF_TYPES = {"now", "utcnow", "today"}
_CLOCK_WITHOUT_ARGUMENT: Mapping[object, int] = {
    time.localtime: 1,
    time.gmtime: 1,
    time.ctime: 1,
    time.strftime: 2,
}
"""Functions that show the present unless they have as many arguments."""
_CHANCE = {os.urandom, uuid.uuid1, uuid.uuid4} | {
    each
    for module in (random, secrets)
    for each in (vars(module)[name] for name in module.__all__)
    if isinstance(each, BuiltinFunctionType | MethodType | FunctionType)
}
_CHANCE -= {random.seed, random.getstate, random.setstate, secrets.compare_digest}
_NUMPY_CHANCE = "numpy.random"
_UNKNOWN = object()


class HiddenInput(NamedTuple):
    """A source of time or chance that code names, such as ``datetime.now``."""

    name: str
    location: Location
    is_clock: bool

    def __str__(self) -> str:
        remedy = (
            "use store.clock.now(), which shows the past where it is computed"
            if self.is_clock
            else "derive it from an argument, as in random.Random(event.event_id), or take it from "
            "the payload or a parameter"
        )
        return f"uses {self.name}, which a computation of the past cannot repeat; {remedy}"


def hidden_inputs(function: Callable[..., Any]) -> tuple[HiddenInput, ...]:
    """Return the sources of time and chance that a function, or one that it calls, names.

    Functions of other packages are not examined.
    """
    plain = inspect.unwrap(function)
    if not inspect.isfunction(plain):
        return ()
    return tuple(dict.fromkeys(_found_in(plain, {plain})))


def unrepeatable(registry: Registry) -> Iterator[tuple[str, HiddenInput]]:
    """Yield the sources in functions that compute the past, each after its declaration."""
    for feature in registry.features.values():
        if is_computed_again(feature):
            yield from ((f"feature {feature.name!r}", each) for each in hidden_of(feature))
    for context in registry.contexts.values():
        for each in hidden_inputs(context.function):
            yield f"context {context.name!r}", each


def is_computed_again(feature: FeatureDef) -> bool:
    """Return whether training rows, backfills or replays run the feature's function."""
    return feature.derived or bool(feature.triggers) or not feature.has_history


def hidden_of(feature: FeatureDef) -> tuple[HiddenInput, ...]:
    """Return the sources of time and chance in a feature's function, if it has code."""
    has_code = feature.template is None and feature.sql is None
    return hidden_inputs(feature.function) if has_code else ()


def _found_in(function: FunctionType, seen: set[FunctionType]) -> Iterator[HiddenInput]:
    defined = _parsed(function)
    if defined is None:
        return
    names = _Names(function, defined)
    for node in ast.walk(ast.Module(defined.body, [])):
        named = names.value_of(node)
        kind = _kind(named) or _kind_of_call(node, names)
        if kind is not None:
            code = function.__code__
            place = Location(code.co_filename, code.co_firstlineno + _line(node) - 1)
            yield HiddenInput(_shown(node), place, kind == "clock")
        elif isinstance(named, FunctionType) and named not in seen and _is_near(named, function):
            seen.add(named)
            yield from _found_in(named, seen)


def _parsed(function: FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        defined = ast.parse(source_of(function) or "").body[0]
    except (SyntaxError, ValueError, IndexError):  # a lambda is a part of a statement
        return None
    return defined if isinstance(defined, ast.FunctionDef | ast.AsyncFunctionDef) else None


class _Names:
    """The values of the names in the code of a function that are known before it runs."""

    def __init__(self, function: FunctionType, defined: ast.AST) -> None:
        local = dict.fromkeys(function.__code__.co_varnames, _UNKNOWN) | _imported(defined)
        self._variables = ChainMap(local, enclosed_variables(function), function.__globals__)

    def value_of(self, node: ast.AST) -> object:
        """Return the value of a name, or of a name in a module or class."""
        if isinstance(node, ast.Name):
            return self._variables.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            owner = self.value_of(node.value)
            if isinstance(owner, ModuleType | type):
                with suppress(AttributeError):
                    return getattr(owner, node.attr)
        return _UNKNOWN


def _imported(defined: ast.AST) -> dict[str, object]:
    """Return what a function imports from modules that are loaded."""
    found: dict[str, object] = {}
    for node in ast.walk(defined):
        if isinstance(node, ast.Import):
            for each in node.names:
                name = each.name if each.asname else each.name.partition(".")[0]
                found[each.asname or name] = sys.modules.get(name, _UNKNOWN)
        elif isinstance(node, ast.ImportFrom):
            module = sys.modules.get(node.module or "")
            values = {} if module is None else vars(module)
            for each in node.names:
                found[each.asname or each.name] = values.get(each.name, _UNKNOWN)
    return found


def _kind(value: object) -> str | None:
    """Return whether a function gives the time or chance: "clock", "chance" or None."""
    if isinstance(value, BuiltinFunctionType | MethodType):
        owner = value.__self__
        if isinstance(owner, type) and issubclass(owner, date):
            return "clock" if value.__name__ in _CLOCK_OF_TYPES else None
        if type(owner).__module__.startswith(_NUMPY_CHANCE):
            return "chance"
    if isinstance(value, BuiltinFunctionType | MethodType | FunctionType):
        return "clock" if value in _CLOCK else "chance" if value in _CHANCE else None
    return None


def _kind_of_call(node: ast.AST, names: _Names) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    called = names.value_of(node.func)
    if isinstance(called, BuiltinFunctionType):
        enough = _CLOCK_WITHOUT_ARGUMENT.get(called)
        return "clock" if enough is not None and len(node.args) < enough else None
    is_unseeded = called is random.Random and not node.args
    return "chance" if is_unseeded or called is random.SystemRandom else None


def _is_near(called: FunctionType, caller: FunctionType) -> bool:
    return called.__module__.partition(".")[0] == caller.__module__.partition(".")[0]


def _line(node: ast.AST) -> int:
    assert isinstance(node, ast.expr)
    return node.lineno


def _shown(node: ast.AST) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)
