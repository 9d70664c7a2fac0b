"""The page of seams names every port, and its package gives every name."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Protocol

import pytest

from headwater import ports

ROOMS = [name for _, name, _ in iter_modules(ports.__path__)]


def room(name: str) -> ModuleType:
    return import_module(f"headwater.ports.{name}")


def defined(module: ModuleType) -> dict[str, type]:
    """The classes that a room defines itself."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


def page() -> dict[str, list[str]]:
    """The seams of each room, as the docstring of the package lists them."""
    listed: dict[str, list[str]] = {}
    for line in (ports.__doc__ or "").splitlines():
        row = re.fullmatch(r"([a-z]*) +([A-Z]\w+) {2,}\S.*", line)
        if row:
            current = row[1] or list(listed)[-1]
            listed.setdefault(current, []).append(row[2])
    return listed


def test_every_seam_is_on_one_page() -> None:
    assert page() == {
        name: [each for each, kind in defined(room(name)).items() if Protocol in kind.__bases__]
        for name in ROOMS
    }


@pytest.mark.parametrize("name", ROOMS)
def test_the_package_gives_whatever_a_room_defines(name: str) -> None:
    missing = set(defined(room(name))) - set(ports.__all__)
    assert not missing
