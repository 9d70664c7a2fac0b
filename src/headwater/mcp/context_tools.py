"""One tool for each declared context, with the parameters of its function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from headwater.core.durations import format_duration
from headwater.declarations.contexts import ContextDef
from headwater.declarations.runtime import runtime_of
from headwater.mcp.assembled import AssembledContext, context_result
from headwater.mcp.results import ToolResult
from headwater.mcp.schemas import parameters_schema, schema_of
from headwater.mcp.tool import StoreTool
from headwater.store.feature_store import FeatureStore

PREFIX = "context_"

_MILLISECOND = timedelta(milliseconds=1)

# Hosts and model APIs accept only such names. Other contexts are assembled by assemble_context.
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def context_tools(store: FeatureStore) -> list[StoreTool]:
    """Return the tools of all declared contexts whose names hosts accept."""
    contexts = runtime_of(store).registry.contexts.values()
    returns = schema_of(AssembledContext)
    return [
        _tool(store, context, returns)
        for context in contexts
        if _SAFE_NAME.fullmatch(PREFIX + context.name)
    ]


def _tool(store: FeatureStore, context: ContextDef, returns: dict[str, Any]) -> StoreTool:
    return StoreTool(
        name=PREFIX + context.name,
        title=f"Assemble the context {context.name}",
        scope="assemble",
        description=_description(context),
        input_schema=parameters_schema(context),
        output_schema=returns,
        call=partial(_assemble, store, context.name),
        is_read_only=False,
        context=context.name,
    )


async def _assemble(store: FeatureStore, name: str, params: Mapping[str, Any]) -> ToolResult:
    return context_result(await store.assemble(name, params))


def _description(context: ContextDef) -> str:
    lines = [context.description or f"Assemble the context {context.name!r}."]
    if context.max_tokens is not None:
        lines.append(f"At most {context.max_tokens} tokens.")
    if context.freshness_sla is not None:
        verb = "refused" if context.freshness_strict else "marked as degraded"
        age = format_duration(context.freshness_sla // _MILLISECOND)
        lines.append(f"If a value is older than {age}, the context is {verb}.")
    return " ".join(lines)
