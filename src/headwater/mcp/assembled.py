"""Assembled contexts as results of tools."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from mcp_types import ResourceLink, TextContent

from headwater.mcp.results import ToolResult, record_facts
from headwater.mcp.uris import context_uri
from headwater.model.lineage import Context, FreshnessStatus, FreshnessViolation


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


def context_result(context: Context) -> ToolResult:
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
    return ToolResult(
        value=AssembledContext(recorded=recorded, **facts),
        facts=record_facts(context),
        content=[TextContent(text=context.content), *([link] if recorded else [])],
    )
