"""The scopes and limits of a caller's key, applied to tools."""

from __future__ import annotations

from headwater.access.errors import ScopeError
from headwater.mcp.tool import StoreTool
from headwater.model.callers import AccessScope, Caller


def may_call(caller: Caller, tool: StoreTool) -> bool:
    """Return whether a caller may call a tool at all."""
    contexts = None if caller.limits is None or tool.context is None else caller.limits.contexts
    return caller.may(tool.scope) and (contexts is None or tool.context in contexts)


def check_scope(caller: Caller, scope: AccessScope) -> None:
    """Raise ScopeError if a caller does not have a scope."""
    if not caller.may(scope):
        raise ScopeError(caller, scope)
