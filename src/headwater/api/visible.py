"""The declarations that a caller may see, by the scopes and limits of its key."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from headwater.api.declarations import RetrieverListing, StoreListing, declarations_of
from headwater.core.callers import AccessScope, Caller, CallerLimits
from headwater.declarations.graph import Graph
from headwater.store.feature_store import FeatureStore

# A key that publishes, assembles or reads records needs the names that it uses.
SEEN_WITH: dict[str, frozenset[AccessScope]] = {
    "entities": frozenset({"read", "ingest", "assemble", "records"}),
    "features": frozenset({"read"}),
    "indexes": frozenset({"read", "ingest"}),
    "retrievers": frozenset({"read"}),
    "contexts": frozenset({"read", "assemble", "records"}),
    "events": frozenset({"read", "ingest"}),
    "sources": frozenset({"read"}),
}
"""The scopes of which one is enough to see a kind of declaration."""


def visible_declarations(store: FeatureStore, caller: Caller | None) -> StoreListing:
    """Return the declarations that a caller may see, and the graph of these alone."""
    listing = declarations_of(store)
    if caller is None or (caller.may("read") and caller.limits is None):
        return listing
    allowed = listing if caller.limits is None else _within(listing, caller.limits)
    events = _triggers(allowed) if may_see(caller, "events") else ()
    seen = msgspec.structs.replace(
        allowed, **{kind: () for kind in _KINDS if not may_see(caller, kind)}
    )
    return msgspec.structs.replace(seen, graph=_part(seen, events))


def may_see(caller: Caller, kind: str) -> bool:
    """Return whether the scopes of a caller show a kind of declarations."""
    return any(map(caller.may, SEEN_WITH[kind]))


_KINDS = ("entities", "features", "indexes", "retrievers", "contexts")


def _within(listing: StoreListing, limits: CallerLimits) -> StoreListing:
    """Return the declarations that limits allow."""
    indexes = () if limits.tenant and limits.indexes is None else limits.indexes
    return msgspec.structs.replace(
        listing,
        entities=[each for each in listing.entities if _is_in(each.name, limits.entities)],
        features=[each for each in listing.features if _is_in(each.entity, limits.entities)],
        indexes=[each for each in listing.indexes if _is_in(each.name, indexes)],
        retrievers=[each for each in listing.retrievers if _may_call(each, limits, indexes)],
        contexts=[each for each in listing.contexts if _is_in(each.name, limits.contexts)],
    )


def _may_call(
    retriever: RetrieverListing, limits: CallerLimits, indexes: Collection[str] | None
) -> bool:
    """Return whether limits allow a retriever; a function may read anything."""
    if retriever.index is not None:
        return _is_in(retriever.index, indexes)
    return limits.entities is None and indexes is None


def _is_in(name: str, allowed: Collection[str] | None) -> bool:
    return allowed is None or name in allowed


def _triggers(listing: StoreListing) -> set[str]:
    return {event_type for feature in listing.features for event_type in feature.triggers}


def _part(listing: StoreListing, events: Iterable[str]) -> Graph:
    """Return the nodes of these declarations and events, and of the sources that they read."""
    graph = listing.graph
    seen = {f"event:{each}" for each in events}
    seen |= {f"feature:{each.name}" for each in listing.features}
    seen |= {f"index:{each.name}" for each in listing.indexes}
    seen |= {f"retriever:{each.name}" for each in listing.retrievers}
    seen |= {f"context:{each.name}" for each in listing.contexts}
    seen |= {e.source for e in graph.edges if e.source.startswith("source:") and e.target in seen}
    return Graph(
        tuple(node for node in graph.nodes if node.id in seen),
        tuple(edge for edge in graph.edges if edge.source in seen and edge.target in seen),
    )
