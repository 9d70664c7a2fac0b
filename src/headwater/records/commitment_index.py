"""The commitments of a parsed core, found in time linear in its size, also in a hostile one.

A dict of all pointers would not be linear: one long key is part of the pointer of everything
below it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from headwater.core.canonical_json import child
from headwater.records.sealing import is_commitment

_INDEX = re.compile(r"0|[1-9][0-9]{0,15}")
_Path = tuple[str | int, "_Path"] | None
"""The last step to a node, and the path of the node above it."""


class CommitmentIndex:
    """Finds commitments by their pointers, and names the ones at which nothing points."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._size = sum(1 for _ in _walk(tree))

    def __len__(self) -> int:
        return self._size

    def find(self, pointer: str) -> dict[str, Any] | None:
        """Return the commitment at a pointer in the one spelling that records use."""
        first, *steps = pointer.split("/")
        node = None if first else self._tree
        for step in steps:
            if is_commitment(node):
                return None
            node = _member(node, step)
        return node if is_commitment(node) else None

    def __contains__(self, pointer: str) -> bool:
        return self.find(pointer) is not None

    def without(self, pointers: Iterable[str]) -> _Unnamed:
        """Return the commitments at which none of these pointers points."""
        named = {id(node) for pointer in pointers if (node := self.find(pointer)) is not None}
        return _Unnamed(self._tree, named, self._size - len(named))


class _Unnamed:
    """Some commitments of a core: their number, and the pointers of the first ones."""

    def __init__(self, tree: Any, named: Collection[int], size: int) -> None:
        self._tree = tree
        self._named = named
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        if self._size:
            yield from (
                _pointer(path) for node, path in _walk(self._tree) if id(node) not in self._named
            )


def _member(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        key = step.replace("~1", "/").replace("~0", "~")
        return node.get(key) if child("", key) == f"/{step}" else None
    if isinstance(node, list) and _INDEX.fullmatch(step) and int(step) < len(node):
        return node[int(step)]
    return None


def _walk(tree: Any) -> Iterator[tuple[dict[str, Any], _Path]]:
    """Yield every commitment with its path, in the order of the core."""
    waiting: list[tuple[Any, _Path]] = [(tree, None)]
    while waiting:
        node, path = waiting.pop()
        if is_commitment(node):
            yield node, path
        elif isinstance(node, dict):
            waiting.extend((item, (key, path)) for key, item in reversed(node.items()))
        elif isinstance(node, list):
            places = range(len(node) - 1, -1, -1)
            waiting.extend((node[place], (place, path)) for place in places)


def _pointer(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        step, path = path
        steps.append(child("", step))
    return "".join(reversed(steps))
