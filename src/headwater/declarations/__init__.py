"""Declarations: decorators, definitions, registry and dependency graph."""

from headwater.declarations.context_decorators import annotations_of, context, retriever
from headwater.declarations.contexts import (
    ContextDef,
    ContextFunction,
    Overrides,
    RetrieverDef,
    RetrieverFunction,
    check_not_looser,
    overrides,
    reference,
)
from headwater.declarations.items import Chunk, ContextItem

__all__ = [
    "Chunk",
    "ContextDef",
    "ContextFunction",
    "ContextItem",
    "Overrides",
    "RetrieverDef",
    "RetrieverFunction",
    "annotations_of",
    "check_not_looser",
    "context",
    "overrides",
    "reference",
    "retriever",
]
