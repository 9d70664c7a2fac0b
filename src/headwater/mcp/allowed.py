"""What a caller may see: the scopes and limits of its key applied to tools and declarations."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from headwater.access.errors import ScopeError
from headwater.api.declarations import (
    ContextListing,
    EntityListing,
    FeatureListing,
    IndexListing,
    RetrieverListing,
)
from headwater.core.callers import AccessScope, Caller, CallerLimits
from headwater.mcp.tool import StoreTool


class Declarations(msgspec.Struct, frozen=True, kw_only=True):
    """The declarations of a features file."""

    entities: Sequence[EntityListing] = ()
    features: Sequence[FeatureListing] = ()
    indexes: Sequence[IndexListing] = ()
    retrievers: Sequence[RetrieverListing] = ()
    contexts: Sequence[ContextListing] = ()

    def within(self, limits: CallerLimits) -> Declarations:
        """Return the declarations that a key with limits may use; no tool calls retrievers."""
        indexes = () if limits.tenant and limits.indexes is None else limits.indexes
        return Declarations(
            entities=[each for each in self.entities if _is_in(each.name, limits.entities)],
            features=[each for each in self.features if _is_in(each.entity, limits.entities)],
            indexes=[each for each in self.indexes if _is_in(each.name, indexes)],
            contexts=[each for each in self.contexts if _is_in(each.name, limits.contexts)],
        )


def may_call(caller: Caller, tool: StoreTool) -> bool:
    """Return whether a caller may call a tool at all."""
    contexts = None if caller.limits is None or tool.context is None else caller.limits.contexts
    return caller.may(tool.scope) and _is_in(tool.context, contexts)


def check_scope(caller: Caller, scope: AccessScope) -> None:
    """Raise ScopeError if a caller does not have a scope."""
    if not caller.may(scope):
        raise ScopeError(caller, scope)


def _is_in(name: str | None, allowed: Collection[str] | None) -> bool:
    return allowed is None or name in allowed
