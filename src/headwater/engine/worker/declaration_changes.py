"""Noticing features whose query has changed since the last worker of this store."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256

import msgspec

from headwater.core.logging import log
from headwater.declarations.features import FeatureDef
from headwater.features.services import Services
from headwater.ports import Cached

_KEY = "declared-queries"
_KEPT = timedelta(days=3650)
# White space, or a text in which it counts: a literal, a quoted name, a comment.
_SPACE = re.compile(
    r"""\s+|'[^']*'|"[^"]*"|(\$\w*\$).*?\1|--[^\n]*\n?""",
    re.DOTALL,
)

_decode = msgspec.json.Decoder(dict[str, str]).decode


async def report_changes(services: Services) -> None:
    """Log each feature that was declared with another query before."""
    cache, features = services.backends.notes, services.registry.features
    stored = await cache.get(_KEY)
    before = _decode(stored.value) if stored else {}
    declared = {
        name: _query(feature) for name, feature in features.items() if feature.sql is not None
    }
    for name, query in declared.items():
        if before.get(name, query) != query:
            log.warning(
                "feature has another query",
                feature=name,
                remedy="values of the old query stay until the next run; `headwater refresh` "
                "runs it",
            )
    if declared.items() - before.items():
        queries = msgspec.json.encode(before | declared)
        await cache.put(_KEY, Cached(queries, services.clock.micros()), _KEPT)


def _query(feature: FeatureDef) -> str:
    """Return a hash of a query, in which white space counts only where it matters."""
    query = _SPACE.sub(_one_space, feature.sql or "").strip()
    return sha256(query.encode()).hexdigest()[:16]


def _one_space(found: re.Match[str]) -> str:
    return " " if found[0].isspace() else found[0]
