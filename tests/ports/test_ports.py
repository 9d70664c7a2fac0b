"""The docstring of the package lists every port, and the package exports every name."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Protocol

import pytest

from headwater import ports

MODULES = [name for _, name, _ in iter_modules(ports.__path__)]


def module(name: str) -> ModuleType:
    return import_module(f"headwater.ports.{name}")


def defined(module: ModuleType) -> dict[str, type]:
    """Return the classes that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


def page() -> dict[str, list[str]]:
    """Return the ports of each module, as the docstring of the package lists them."""
    listed: dict[str, list[str]] = {}
    for line in (ports.__doc__ or "").splitlines():
        row = re.fullmatch(r"([a-z]*) +([A-Z]\w+) {2,}\S.*", line)
        if row:
            current = row[1] or list(listed)[-1]
            listed.setdefault(current, []).append(row[2])
    return listed


def test_the_docstring_lists_every_port() -> None:
    found = {
        name: [each for each, kind in defined(module(name)).items() if Protocol in kind.__bases__]
        for name in MODULES
    }
    assert page() == {name: listed for name, listed in found.items() if listed}


@pytest.mark.parametrize("name", MODULES)
def test_the_package_exports_every_class_of_its_modules(name: str) -> None:
    missing = set(defined(module(name))) - set(vars(ports))
    assert not missing
