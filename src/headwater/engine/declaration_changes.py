"""Noticing features whose type or query has changed since the last worker of this store."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256

import msgspec

from headwater.core.logging import log
from headwater.core.type_structure import structure_of
from headwater.declarations.features import FeatureDef
from headwater.features.services import Services
from headwater.ports import Cached

_KEY = "declared-shapes"
_KEPT = timedelta(days=3650)
# White space, or a text in which it counts: a literal, a quoted name, a comment.
_SPACE = re.compile(
    r"""\s+|'[^']*'|"[^"]*"|(\$\w*\$).*?\1|--[^\n]*\n?""",
    re.DOTALL,
)
_QUALIFIER = re.compile(r"(?:[\w<>]+\.)+")


class _Shape(msgspec.Struct, frozen=True):
    """What the stored values of a feature depend on: hashes, and the type's name for the log."""

    type: str
    structure: str
    query: str


_decode = msgspec.json.Decoder(dict[str, _Shape]).decode


async def report_changes(services: Services) -> None:
    """Log each feature that was declared with another type or query before."""
    cache, features = services.backends.declarations, services.registry.features
    stored = await cache.get(_KEY)
    before = _decode(stored.value) if stored else {}
    declared = {name: _shape(feature) for name, feature in features.items()}
    for name, shape in declared.items():
        _compare(name, before.get(name, shape), shape)
    if declared.items() - before.items():
        shapes = msgspec.json.encode(before | declared)
        await cache.put(_KEY, Cached(shapes, services.clock.micros()), _KEPT)


def _compare(name: str, before: _Shape, now: _Shape) -> None:
    if before.structure != now.structure:
        log.warning(
            "feature has another type",
            feature=name,
            before=before.type,
            now=now.type if now.type != before.type else f"{now.type} with other fields",
            remedy="values of the old type cannot be read until they are written again; to keep "
            "them, change the annotation back and declare a new feature",
        )
    if before.query != now.query:
        log.warning(
            "feature has another query",
            feature=name,
            remedy="values of the old query stay until the next run; `headwater refresh` runs it",
        )


def _shape(feature: FeatureDef) -> _Shape:
    return _Shape(
        _QUALIFIER.sub("", feature.codec.expected),
        _hash(structure_of(feature.codec.annotation)),
        _hash(_SPACE.sub(_one_space, feature.sql or "").strip()),
    )


def _one_space(found: re.Match[str]) -> str:
    return " " if found[0].isspace() else found[0]


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
