"""The scopes and limits of a caller's key, applied to tools."""

from __future__ import annotations

from headwater.mcp.tool import StoreTool
from headwater.model.callers import Caller


def may_call(caller: Caller, tool: StoreTool) -> bool:
    """Return whether a caller may call a tool at all."""
    contexts = None if caller.limits is None or tool.context is None else caller.limits.contexts
    return caller.may(tool.scope) and (contexts is None or tool.context in contexts)
