"""The tree of errors in the docstring of its module."""

from __future__ import annotations

import re

from headwater import errors
from headwater.errors import HeadwaterError


def drawn() -> list[tuple[str, str]]:
    """Return each error of the tree with its parent."""
    found: list[tuple[str, str]] = []
    above = {0: "HeadwaterError"}
    for branch, name in re.findall(r"^([│ ]*[├└]── )(\w+) {2,}\S", errors.__doc__ or "", re.M):
        depth = len(branch) // 4
        above[depth] = name
        found.append((name, above[depth - 1]))
    return found


def test_the_tree_has_every_error_under_its_parent() -> None:
    assert sorted(drawn()) == sorted(
        (name, kind.__bases__[0].__name__)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind is not HeadwaterError
    )
