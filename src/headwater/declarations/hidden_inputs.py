"""Time and chance in the code of functions, which a computation of the past cannot repeat."""

from __future__ import annotations

import ast
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import cached_property, lru_cache
from importlib.util import resolve_name
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from headwater.declarations.code_uses import parsed_source
from headwater.declarations.contexts import RetrieverFunction
from headwater.declarations.definitions import OwnCode, enclosed_variables
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors.hints import Location

_ALWAYS = sys.maxsize

_CLOCK: Mapping[str, int] = {
    "time.time": _ALWAYS,
    "time.time_ns": _ALWAYS,
    "time.localtime": 1,
    "time.gmtime": 1,
    "time.ctime": 1,
    "time.strftime": 2,
}
"""Functions that give the present, unless a call has as many arguments."""
_CLOCK_OF_TYPES = {"now", "utcnow", "today"}
_CHANCE: Mapping[str, int] = {
    "numpy.random.default_rng": 1,
    "numpy.random.mtrand.RandomState": 1,
    "numpy.random.ranf": _ALWAYS,
    "numpy.random.sample": _ALWAYS,
    "posix.getrandom": _ALWAYS,
    "posix.urandom": _ALWAYS,
    "random.Random": 1,
    "random.SystemRandom": _ALWAYS,
    "secrets.randbelow": _ALWAYS,
    "secrets.token_bytes": _ALWAYS,
    "secrets.token_hex": _ALWAYS,
    "secrets.token_urlsafe": _ALWAYS,
    "uuid.uuid1": _ALWAYS,
    "uuid.uuid4": _ALWAYS,
}
"""Functions and classes that give chance, unless a call has as many arguments: a seed."""
_GENERATORS = {
    "numpy.random._generator.Generator",
    "numpy.random.mtrand.RandomState",
    "random.Random",
}
_UNKNOWN = object()
_CACHED = type(lru_cache(len))


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


@lru_cache(4096)
def hidden_inputs(function: Callable[..., Any]) -> tuple[HiddenInput, ...]:
    """Return the sources of time and chance that a function, or one that it calls, names.

    Generators that all calls share are among them, also seeded ones: each draw depends on those
    before it. Code that is not in the folder or package of the function is not examined.
    """
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        return ()
    return tuple(dict.fromkeys(_Examined(OwnCode.of(plain)).sources(plain)))


def unrepeatable(registry: Registry) -> Iterator[tuple[str, HiddenInput]]:
    """Yield the sources in functions that compute the past, each after its declaration."""
    for feature in registry.features.values():
        if is_computed_again(feature) and feature.window is None:  # its function is the family's
            yield from ((f"feature {feature.name!r}", hidden) for hidden in hidden_of(feature))
    for kind, declared in (("retriever", registry.retrievers), ("context", registry.contexts)):
        for definition in declared.values():
            for hidden in hidden_inputs(definition.function):
                yield f"{kind} {definition.name!r}", hidden


def is_computed_again(feature: FeatureDef) -> bool:
    """Return whether training rows, backfills or replays run the feature's function."""
    return feature.derived or bool(feature.triggers) or not feature.has_history


def hidden_of(feature: FeatureDef) -> tuple[HiddenInput, ...]:
    """Return the sources of time and chance in a feature's function, if it has code."""
    has_code = feature.template is None and feature.sql is None
    return hidden_inputs(feature.function) if has_code else ()


class _Examined:
    """The functions that were examined, each once, and once for each object of a method."""

    def __init__(self, own: OwnCode) -> None:
        self._own = own
        self._seen: set[tuple[FunctionType, int]] = set()

    def sources(self, function: FunctionType, owner: object = _UNKNOWN) -> Iterator[HiddenInput]:
        """Yield the sources that a function, or a method of an object, names."""
        key = (function, id(owner))
        if key in self._seen or (defined := parsed_source(function)) is None:
            return
        self._seen.add(key)
        names, code = _Names(function, owner, defined), function.__code__
        reported: set[ast.AST] = set()
        for node in ast.walk(ast.Module(defined.body, [])):
            if node in reported or not isinstance(node, ast.expr):
                continue
            is_clock = names.source(node)
            if is_clock is not None:
                reported.update(ast.walk(_called(node)))
                place = Location(code.co_filename, code.co_firstlineno + node.lineno - 1)
                yield HiddenInput(ast.unparse(_called(node)), place, is_clock)
            else:
                yield from self._sources_of(names.function_of(node))

    def _sources_of(self, value: object) -> Iterator[HiddenInput]:
        """Yield the sources of one of the user's own functions, methods and retrievers."""
        function, owner = value, _UNKNOWN
        if isinstance(value, MethodType):
            function, owner = value.__func__, value.__self__
        if isinstance(function, FunctionType | RetrieverFunction | _CACHED):
            plain = inspect.unwrap(function)
            if isinstance(plain, FunctionType) and self._own.has(
                plain.__module__ or "", plain.__code__.co_filename
            ):
                yield from self.sources(plain, owner)


class _Names:
    """The values of the names in the code of a function that are known before it runs."""

    def __init__(self, function: FunctionType, owner: object, defined: ast.AST) -> None:
        parameters = function.__code__.co_varnames
        local = dict.fromkeys(parameters, _UNKNOWN) | dict.fromkeys(parameters[:1], owner)
        local |= _imported(defined, function.__globals__.get("__package__"))
        self._variables = ChainMap(local, enclosed_variables(function), function.__globals__)
        self._seeded = {ast.unparse(node) for node in _seeded(defined)}

    def value_of(self, node: ast.AST) -> object:
        """Return the value of a name, or of an attribute of one."""
        if isinstance(node, ast.Name):
            return self._variables.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            return _attribute(self.value_of(node.value), node.attr)
        return _UNKNOWN

    def function_of(self, node: ast.expr) -> object:
        """Return the function or method that an expression names, or that a call of it runs."""
        if not isinstance(node, ast.Call):
            return self.value_of(node)
        called = self.value_of(node.func)
        return _attribute(called, "__init__" if isinstance(called, type) else "__call__")

    def source(self, node: ast.expr) -> bool | None:
        """Return whether an expression gives the time, or else chance; None if it gives neither."""
        called = _called(node)
        value = self.value_of(called)
        if _is_clock_of_type(value):
            return True
        if _is_shared_generator(value):
            generator = called.value if isinstance(called, ast.Attribute) else called
            is_seeded = not self._seeded.isdisjoint(map(ast.unparse, (called, generator)))
            return None if is_seeded else False
        name = _full_name(value)
        for sources, is_clock in ((_CLOCK, True), (_CHANCE, False)):
            if name in sources and not _has_arguments(node, sources[name]):
                return is_clock
        return None


def _attribute(owner: object, name: str) -> object:
    """Return an attribute of an object, without running the code of a property."""
    if owner is _UNKNOWN:
        return _UNKNOWN
    with suppress(AttributeError):
        if isinstance(owner, ModuleType | type) or _is_generator(owner):
            return getattr(owner, name)
        return _bound(inspect.getattr_static(owner, name), owner)
    return _UNKNOWN


def _bound(attribute: object, owner: object) -> object:
    """Return what an attribute of a class is for one of its objects; of a property the method."""
    match attribute:
        case FunctionType() as method:
            return MethodType(method, owner)
        case property(fget=FunctionType() as method) | cached_property(func=method):
            return MethodType(method, owner)
        case classmethod(__func__=method):
            return MethodType(method, type(owner))
        case staticmethod(__func__=method):
            return method
        case MemberDescriptorType():
            return attribute.__get__(owner)
    return attribute


def _imported(defined: ast.AST, package: str | None) -> dict[str, object]:
    """Return what a function imports from modules that are loaded."""
    values: dict[str, object] = {}
    for node in ast.walk(defined):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                values[alias.asname or name] = sys.modules.get(name, _UNKNOWN)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # the function itself cannot import it
                name = resolve_name("." * node.level + (node.module or ""), package)
                module = sys.modules.get(name, _UNKNOWN)
                for alias in node.names:
                    values[alias.asname or alias.name] = _attribute(module, alias.name)
    return values


def _seeded(defined: ast.AST) -> Iterator[ast.expr]:
    """Yield the generators that a function seeds itself, before it draws from them."""
    for node in ast.walk(defined):
        match node:
            case ast.Call(func=ast.Attribute(value=generator, attr="seed")):
                if _has_arguments(node, 1):
                    yield generator


def _is_clock_of_type(value: object) -> bool:
    """Return whether a value is ``now`` or the like, of a class of dates."""
    if not isinstance(value, BuiltinFunctionType | MethodType):
        return False
    owner = value.__self__
    is_date = isinstance(owner, type) and issubclass(owner, date)
    return is_date and value.__name__ in _CLOCK_OF_TYPES


def _is_shared_generator(value: object) -> bool:
    """Return whether a value is a generator that all calls share, or a method that draws."""
    if isinstance(value, BuiltinFunctionType | MethodType):
        return _is_generator(value.__self__) and value.__name__ != "seed"
    return _is_generator(value)


def _is_generator(value: object) -> bool:
    return not _GENERATORS.isdisjoint(map(_full_name, type(value).__mro__))


def _full_name(value: object) -> str:
    if isinstance(value, type) or inspect.isroutine(value):
        with suppress(AttributeError):  # some descriptors have no name
            return f"{value.__module__}.{value.__qualname__}"
    return ""


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _has_arguments(node: ast.expr, number: int) -> bool:
    """Return whether a call has so many arguments that are not None; a mere name may get them."""
    if number == _ALWAYS or not isinstance(node, ast.Call):
        return number != _ALWAYS
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    return sum(ast.unparse(value) != "None" for value in values) >= number
