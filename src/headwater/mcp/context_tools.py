"""One tool for each declared context, with the parameters of its function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from mcp_types import ResourceLink, TextContent

from headwater.core.durations import format_duration
from headwater.core.json_values import plain
from headwater.declarations.contexts import ContextDef
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.runtime import runtime_of
from headwater.mcp.resources import context_uri
from headwater.mcp.results import ToolAnswer, record_facts
from headwater.mcp.tool import REF, StoreTool, schema_of
from headwater.model.lineage import Context, FreshnessStatus, FreshnessViolation
from headwater.store.feature_store import FeatureStore

PREFIX = "context_"

_MILLISECOND = timedelta(milliseconds=1)

# Hosts and model APIs accept only such names. Other contexts are assembled by assemble_context.
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class AssembledContext(msgspec.Struct, frozen=True, kw_only=True):
    """An assembled context; its lineage is read by its id."""

    content: str
    context_id: str
    record_hash: str
    name: str
    created_at: datetime
    tokens: int
    recorded: bool
    freshness_status: FreshnessStatus
    freshness_violations: Sequence[FreshnessViolation]


def context_result(context: Context) -> ToolAnswer:
    """Return the text of a context for the model, and a link to its record."""
    recorded: bool = context.meta["recorded"]
    facts = {
        name: getattr(context, name)
        for name in AssembledContext.__struct_fields__
        if name != "recorded"
    }
    link = ResourceLink(
        uri=context_uri(context.context_id),
        name=context.context_id,
        title=f"Record of {context.name}",
        description=f"{context.tokens} tokens, freshness {context.freshness_status}",
        mime_type="application/json",
    )
    return ToolAnswer(
        value=AssembledContext(recorded=recorded, **facts),
        facts=record_facts(context),
        content=[TextContent(text=context.content), *([link] if recorded else [])],
    )


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


async def _assemble(store: FeatureStore, name: str, params: Mapping[str, Any]) -> ToolAnswer:
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


def parameters_schema(context: ContextDef) -> dict[str, Any]:
    """Return the schema of the parameters of a context's function."""
    kinds = annotations_of(context.function)
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    others: Any = False
    declared = context.signature.parameters
    for name, parameter in declared.items():
        schema = _annotation_schema(kinds.get(name, Any), definitions)
        if parameter.kind is parameter.VAR_KEYWORD:
            others = schema
        elif parameter.kind is parameter.VAR_POSITIONAL:
            properties[name] = {"type": "array", "items": schema}
        else:
            properties[name] = {**schema, **_default(parameter)}
    required = [name for name in properties if _is_required(declared[name])]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
        **({"$defs": definitions} if definitions else {}),
    }


def _is_required(parameter: inspect.Parameter) -> bool:
    is_positional = parameter.kind is parameter.VAR_POSITIONAL
    return parameter.default is parameter.empty and not is_positional


def _annotation_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    try:
        (schema,), components = msgspec.json.schema_components([kind], ref_template=REF)
    except TypeError:
        return {}  # the annotation has no JSON form; calls accept any value for it
    definitions |= components
    return schema


def _default(parameter: inspect.Parameter) -> dict[str, Any]:
    if parameter.default is parameter.empty:
        return {}
    try:
        return {"default": msgspec.to_builtins(plain(parameter.default), str_keys=True)}
    except TypeError:
        return {}
