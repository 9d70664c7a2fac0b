"""The declarations that the code of a function names, found without running it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeGuard

from headwater.core.templates import Template, parse_template
from headwater.declarations.contexts import ContextFunction, RetrieverFunction
from headwater.declarations.definitions import OwnCode, enclosed_variables
from headwater.declarations.feature_handles import Feature
from headwater.declarations.indexes import Index
from headwater.errors import TemplateError

_MOST_FUNCTIONS = 4096

# Verbs of a store, and the kind of declaration that their first argument names.
_READING = {
    "get_feature": "feature",
    "get_features": "feature",
    "get_feature_values": "feature",
    "get_feature_history": "feature",
    "get_feature_windows": "feature",
    "search": "index",
    "assemble": "context",
}
_WRITING = {"set_feature": "feature", "index": "index", "publish": "event"}
_VERBS = _READING | _WRITING
_TEMPLATE = "template"
_SET = "set"
_VARIABLE = "variable"


class CodeUse(NamedTuple):
    """A declaration that code reads or writes, though perhaps not in every call."""

    kind: str
    name: str
    is_written: bool = False


def source_of(function: Callable[..., Any]) -> str | None:
    """Return the source of a function; None without source, as in some notebooks."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None


def parsed_source(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the parsed source of a function; None without source, and for a lambda."""
    try:
        defined = ast.parse(source_of(function) or "").body[0]
    except (SyntaxError, ValueError, IndexError):  # a lambda is a part of a statement
        return None
    return defined if isinstance(defined, ast.FunctionDef | ast.AsyncFunctionDef) else None


def uses_of(function: Callable[..., Any]) -> tuple[CodeUse, ...]:
    """Return the declarations that the code of a function names, each once.

    These are names in verbs of a store, references in templates of items, and handles. Functions
    that it calls are not examined. A text may name something that is not declared.
    """
    plain = inspect.unwrap(function)
    if not inspect.isfunction(plain):
        return ()
    variables = ChainMap(enclosed_variables(plain), plain.__globals__)
    uses = []
    for use in _named_in(plain):
        if use.kind != _VARIABLE:
            uses.append(use)
        elif (handle := _handle(variables.get(use.name))) is not None:
            uses.append(handle._replace(is_written=use.is_written))
    return tuple(dict.fromkeys(uses))


@lru_cache(_MOST_FUNCTIONS)
def reached_uses(function: Callable[..., Any]) -> frozenset[CodeUse]:
    """Return the declarations that a function names, or one of the user's own that it calls."""
    plain = inspect.unwrap(function)
    own = OwnCode.of(plain)
    uses: set[CodeUse] = set()
    pending, seen = [plain], set[object]()
    while pending:
        called = pending.pop()
        if called not in seen and isinstance(called, FunctionType):
            seen.add(called)
            uses.update(uses_of(called))
            pending += (inner for inner in _called_by(called) if own.has(*_place(inner)))
    return frozenset(uses)


def _called_by(function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions that the names in the code of a function may mean."""
    variables = ChainMap(enclosed_variables(function), function.__globals__)
    names = set(_names_in(function.__code__))
    values = [variables[name] for name in names if name in variables]
    for module in [value for value in values if isinstance(value, ModuleType)]:
        values += [vars(module)[name] for name in names if name in vars(module)]
    yield from (
        value for value in map(inspect.unwrap, filter(callable, values)) if _is_function(value)
    )


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _is_function(value: object) -> TypeGuard[FunctionType]:
    return isinstance(value, FunctionType)


def _place(function: FunctionType) -> tuple[str, str]:
    return function.__module__ or "", function.__code__.co_filename


def gaps_in_templates(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the features that leave a gap in templates of items of a function if they are missing.

    Each once; without those with a fallback, and those of items that are left out then.
    """
    names = [
        name
        for node, template in _templates(function)
        if not any(map(_leaves_out, node.keywords))
        for name in template.needed
    ]
    return tuple(dict.fromkeys(names))


def templates_in(function: Callable[..., Any]) -> tuple[Template, ...]:
    """Return the templates of items in the code of a function, as far as it spells them out."""
    return tuple([template for _, template in _templates(function)])


def _templates(function: Callable[..., Any]) -> Iterator[tuple[ast.Call, Template]]:
    defined = parsed_source(inspect.unwrap(function))
    for node in ast.walk(defined) if defined else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="template"), args=[argument, *_]):
                yield from ((node, _parsed(text)) for text in _texts(argument))


def _leaves_out(keyword: ast.keyword) -> bool:
    is_drop = isinstance(keyword.value, ast.Constant) and keyword.value.value == "drop"
    return keyword.arg == "when_missing" and is_drop


@lru_cache(_MOST_FUNCTIONS)
def _named_in(function: Callable[..., Any]) -> tuple[CodeUse, ...]:
    """Return the names in the code of a function: of declarations, and of variables."""
    defined = parsed_source(function)
    uses = [] if defined is None else [use for part in defined.body for use in _names(part)]
    return tuple(dict.fromkeys(uses))


def _names(statement: ast.stmt) -> Iterator[CodeUse]:
    written: set[ast.expr] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == _SET:
                written.add(node.func.value)
            elif node.args:
                yield from _named_by(node.func.attr, node.args[0])
        elif isinstance(node, ast.Name):
            yield CodeUse(_VARIABLE, node.id, node in written)


def _named_by(verb: str, argument: ast.expr) -> Iterator[CodeUse]:
    """Return the declarations that the first argument of a verb names."""
    if verb != _TEMPLATE and verb not in _VERBS:
        return
    for text in _texts(argument):
        if verb == _TEMPLATE:
            yield from (CodeUse("feature", name) for name in _parsed(text).references)
        else:
            yield CodeUse(_VERBS[verb], text, verb in _WRITING)


def _texts(argument: ast.expr) -> Iterator[str]:
    for node in ast.walk(argument):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _parsed(text: str) -> Template:
    try:
        return parse_template(text)
    except TemplateError:
        return Template(("",), ())


def _handle(value: object) -> CodeUse | None:
    match value:
        case Feature():
            return CodeUse("feature", value.name)
        case RetrieverFunction():
            return CodeUse("retriever", value.definition.name)
        case ContextFunction():
            return CodeUse("context", value.definition.name)
        case Index():
            return CodeUse("index", value.name)
    return None
