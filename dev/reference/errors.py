"""The errors that callers can catch, as one tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dev.reference.remedies import linked
from dev.reference.source import classes
from dev.reference.tables import code, prose
from headwater import errors
from headwater.errors import HeadwaterError
from headwater.http.routing.problems import RULES

_INDENT = "    "


def tree() -> Iterator[str]:
    """Yield a nested list of all errors."""
    attributes = {
        name: _attributes(body) for name, body in ((each.name, each.body) for each in classes())
    }
    return _branch(HeadwaterError, attributes, "")


def _branch(
    error: type[HeadwaterError], attributes: dict[str, list[str]], indent: str
) -> Iterator[str]:
    name = error.__name__
    has = f" Has {code(*attributes[name])}." if attributes[name] else ""
    text = prose(error.__doc__ or "")
    yield f"{indent}- {linked(name)}{_also(error)}: {text}{has}{_status(error)}"
    for below in error.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _branch(below, attributes, indent + _INDENT)


def _also(error: type[HeadwaterError]) -> str:
    builtin = [base.__name__ for base in error.__bases__ if not issubclass(base, HeadwaterError)]
    return f" (also a {code(*builtin)})" if builtin and error is not HeadwaterError else ""


def _status(error: type[HeadwaterError]) -> str:
    rule = RULES.get(error)
    return f" [HTTP {rule.status}](problems.md#{rule.status})" if rule else ""


def _attributes(body: list[ast.stmt]) -> list[str]:
    """Return the public attributes that a class declares, or assigns when it is created."""
    names = []
    for line in body:
        match line:
            case ast.AnnAssign(target=ast.Name(name)):
                names.append(name)
            case ast.FunctionDef(name="__init__", body=statements):
                names += [name for each in statements for name in _assigned(each)]
    return [name for name in names if not name.startswith("_")]


def _assigned(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                yield name
