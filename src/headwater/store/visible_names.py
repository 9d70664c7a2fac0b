"""The names of declarations that a caller may see, by the scopes and limits of its key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from headwater.core.sql_sources import mentioned
from headwater.declarations.registry import Registry
from headwater.declarations.retrievers import RetrieverDef
from headwater.model.callers import AccessScope, Caller, CallerLimits

DeclarationKind = Literal["entity", "feature", "index", "retriever", "context", "event", "source"]
VisibleNames = dict[DeclarationKind, list[str]]

# A key that publishes, assembles or reads records needs the names that it uses.
_SEEN_WITH: dict[DeclarationKind, tuple[AccessScope, ...]] = {
    "entity": ("read", "ingest", "assemble", "records"),
    "feature": ("read",),
    "index": ("read", "ingest"),
    "retriever": ("read",),
    "context": ("read", "assemble", "records"),
    "event": ("read", "ingest"),
    "source": ("read",),
}
_EVERYTHING = CallerLimits()


def visible_names(registry: Registry, caller: Caller | None) -> VisibleNames:
    """Return the names that a caller may see, of each kind, in the order of their declaration.

    Without a caller these are all.
    """
    limits = _EVERYTHING if caller is None else caller.limits or _EVERYTHING
    indexes = () if limits.tenant and limits.indexes is None else limits.indexes
    features = [f for f in registry.features.values() if _is_in(f.entity.name, limits.entities)]
    events = [event_type for feature in features for event_type in feature.triggers]
    sources = [name for f in features for name in mentioned(f.sql or "", registry.sources)]
    allowed: VisibleNames = {
        "entity": [name for name in registry.entities if _is_in(name, limits.entities)],
        "feature": [feature.name for feature in features],
        "index": [name for name in sorted(registry.all_indexes()) if _is_in(name, indexes)],
        "retriever": [
            name for name, each in registry.retrievers.items() if _may_call(each, limits, indexes)
        ],
        "context": [name for name in registry.contexts if _is_in(name, limits.contexts)],
        "event": list(dict.fromkeys(events)),
        "source": list(dict.fromkeys(sources)),
    }
    return {kind: names if _may_see(caller, kind) else [] for kind, names in allowed.items()}


def _may_see(caller: Caller | None, kind: DeclarationKind) -> bool:
    return caller is None or any(map(caller.may, _SEEN_WITH[kind]))


def _may_call(
    retriever: RetrieverDef, limits: CallerLimits, indexes: Collection[str] | None
) -> bool:
    """Return whether limits allow a retriever; a function may read anything."""
    if retriever.search is not None:
        return _is_in(retriever.search.index, indexes)
    return limits.entities is None and indexes is None


def _is_in(name: str, allowed: Collection[str] | None) -> bool:
    return allowed is None or name in allowed
