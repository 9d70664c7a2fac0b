"""Declarations: decorators, definitions, registry and dependency graph."""

from headwater.declarations.context_decorators import annotations_of, context, retriever
from headwater.declarations.contexts import (
    ContextDef,
    ContextFunction,
    Overrides,
    RetrieverDef,
    RetrieverFunction,
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
    "context",
    "overrides",
    "reference",
    "retriever",
]
