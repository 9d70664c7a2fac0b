"""Declarations: decorators, definitions, registry and dependency graph."""

from headwater.declarations.context_decorators import context
from headwater.declarations.contexts import (
    ContextDef,
    ContextFunction,
    RetrieverFunction,
    check_not_looser,
    overrides,
    reference,
)
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.items import Chunk, ContextItem
from headwater.declarations.retriever_decorator import retriever
from headwater.declarations.retrievers import IndexSearch, RetrieverDef

__all__ = [
    "Chunk",
    "ContextDef",
    "ContextFunction",
    "ContextItem",
    "IndexSearch",
    "RetrieverDef",
    "RetrieverFunction",
    "annotations_of",
    "check_not_looser",
    "context",
    "overrides",
    "reference",
    "retriever",
]
