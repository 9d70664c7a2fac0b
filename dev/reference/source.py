"""The calls and classes in the source of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "headwater"


@cache
def _nodes() -> list[ast.Call | ast.ClassDef]:
    return [
        node
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.ClassDef)
    ]


def calls() -> Iterator[ast.Call]:
    """Yield all calls."""
    yield from (node for node in _nodes() if isinstance(node, ast.Call))


def classes() -> Iterator[ast.ClassDef]:
    """Yield all classes."""
    yield from (node for node in _nodes() if isinstance(node, ast.ClassDef))
