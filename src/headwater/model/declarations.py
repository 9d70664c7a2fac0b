"""Listings and the graph of the declarations of a features file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from headwater.core.tables import Tabular
from headwater.model.windows import FamilyListing, MemberListing

Mode = Literal["triggered", "scheduled", "on_demand", "template", "window", "stored"]
NodeKind = Literal["event", "source", "index", "retriever", "context", "entity"] | Mode
FoundIn = Literal["declaration", "code"]


class Node(msgspec.Struct, frozen=True):
    """A feature, whose kind is its mode, or another declaration, an event type or a source.

    Only features have an entity, an owner, tags and a unit.
    """

    id: str
    name: str
    kind: NodeKind
    entity: str | None = None
    description: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()
    unit: str = ""


class Edge(msgspec.Struct, frozen=True):
    """A dependency: ``target`` needs ``source``; both are node ids.

    One that was found in the code of a function is not certain, and others may be missing.
    """

    source: str
    target: str
    found_in: FoundIn = "declaration"


_UNLABELLED = ("event", "source", "entity")
_SHAPES = {
    "event": ("([", "])"),
    "source": ("[(", ")]"),
    "entity": ("((", "))"),
    "index": ("[(", ")]"),
    "retriever": ("{{", "}}"),
    "context": ("[[", "]]"),
    "window": ("[/", "/]"),
}
_ESCAPED = str.maketrans({'"': "'", "#": "#35;", "<": "#lt;"})


class Graph(msgspec.Struct, Tabular, frozen=True):
    """Declarations and their dependencies."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def rows(self) -> Sequence[dict[str, str]]:
        nodes = {node.id: node for node in self.nodes}
        edges = [(nodes[edge.source], nodes[edge.target]) for edge in self.edges]
        return [
            {"from": f"{source.name} ({source.kind})", "to": f"{target.name} ({target.kind})"}
            for source, target in edges
        ]

    def to_mermaid(self) -> str:
        """Return the graph as Mermaid text.

        >>> print(store.graph().to_mermaid())
        flowchart LR
            n0["total_spend<br/>triggered"]
            ...
        """
        keys = {node.id: f"n{number}" for number, node in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for node in self.nodes:
            opening, closing = _SHAPES.get(node.kind, ("[", "]"))
            kind = "" if node.kind in _UNLABELLED else node.kind
            texts = (node.name, ", ".join(filter(None, (kind, node.unit, node.owner))))
            label = "<br/>".join(text.translate(_ESCAPED) for text in texts if text)
            lines.append(f'    {keys[node.id]}{opening}"{label}"{closing}')
        for edge in self.edges:
            arrow = "-->" if edge.found_in == "declaration" else "-.->"
            lines.append(f"    {keys[edge.source]} {arrow} {keys[edge.target]}")
        return "\n".join(lines)

    def folded(self) -> Graph:
        """Return the graph with one node for each family of windows, whose kind is ``window``.

        >>> len(store.graph().folded().nodes) <= len(store.graph().nodes)
        True
        """
        members = {node.id for node in self.nodes if node.kind == "window"}
        families = {edge.target: edge.source for edge in self.edges if edge.target in members}
        heads = set(families.values())
        nodes = [
            msgspec.structs.replace(node, kind="window") if node.id in heads else node
            for node in self.nodes
            if node.id not in families
        ]
        edges: dict[tuple[str, str], Edge] = {}
        for edge in self.edges:
            source, target = (families.get(end, end) for end in (edge.source, edge.target))
            if source != target:
                moved = Edge(source, target, edge.found_in)
                edges.setdefault((source, target), moved)
        return Graph(tuple(nodes), tuple(edges.values()))


class EntityListing(msgspec.Struct, frozen=True, kw_only=True):
    """An entity and the field that identifies it."""

    name: str
    id_field: str
    id_type: str
    description: str
    belongs_to: Mapping[str, str]
    """The entities that it belongs to, by the feature or payload field with an owner's id."""


class EventListing(msgspec.Struct, frozen=True, kw_only=True):
    """A type of events: one that triggers features, or whose payload is declared.

    ``schema`` is the JSON Schema of its payload, null if any object is allowed.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Any] | None = None


class FeatureListing(msgspec.Struct, frozen=True, kw_only=True):
    """A feature and how it is computed."""

    name: str
    entity: str
    type: str
    mode: Mode
    description: str
    owner: str
    tags: Sequence[str]
    unit: str
    triggers: Sequence[str]
    needs: Sequence[str]
    refresh: str | None
    schedule: str | None
    """When it is due, in words."""
    next_runs: Sequence[datetime]
    """The next due times, in the time zone of its schedule."""
    ttl_ms: int | None
    materialize: bool
    freshness: str
    freshness_sla_ms: int | None
    log: bool
    derived: bool
    sql: str | None
    template: str | None
    default: Any
    belongs_to: str | None
    """The entity that its own belongs to, if its value is the owner's id."""
    windows: FamilyListing | None
    """Of a family of windows."""
    window: MemberListing | None
    """Of a feature of such a family."""


class ParameterListing(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a retriever or a context."""

    name: str
    type: str | None
    required: bool
    default: Any


class IndexListing(msgspec.Struct, frozen=True, kw_only=True):
    """An index and its options; ``embedder`` is null if the settings name it."""

    name: str
    embedder: str | None
    model: str | None
    dimensions: int | None
    chunk_tokens: int
    overlap: int
    keep_versions_ms: int


class RetrieverListing(msgspec.Struct, frozen=True, kw_only=True):
    """A retriever and its options."""

    name: str
    description: str
    parameters: Sequence[ParameterListing]
    index: str | None
    mode: str | None
    cache_ttl_ms: int | None
    freshness_sla_ms: int | None
    on_error: str
    top_k: int | None
    timeout_ms: int | None
    record: bool


class ContextListing(msgspec.Struct, frozen=True, kw_only=True):
    """A context and its options."""

    name: str
    version: str | None
    description: str
    parameters: Sequence[ParameterListing]
    max_tokens: int | None
    model: str | None
    freshness_sla_ms: int | None
    freshness_strict: bool
    separator: str
    on_overflow: str
    backfill: bool
    timeout_ms: int | None
    allow_looser: Sequence[str]


class StoreListing(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """All declarations of a features file."""

    entities: Sequence[EntityListing]
    events: Sequence[EventListing] = ()
    features: Sequence[FeatureListing]
    indexes: Sequence[IndexListing]
    retrievers: Sequence[RetrieverListing]
    contexts: Sequence[ContextListing]
    graph: Graph

    def rows(self) -> Sequence[dict[str, object]]:
        shown = ("name", "entity", "type", "mode", "triggers", "unit", "owner", "description")
        return [{name: getattr(feature, name) for name in shown} for feature in self.features]
