"""Bodies of the routes that assemble contexts; the command line prints the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headwater.records.lineage import (
    Context,
    ContextLineage,
    FreshnessStatus,
    FreshnessViolation,
)


class AssembleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a context, and options that replace declared ones for this call."""

    params: dict[str, Any] = {}
    interaction_ref: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: str | msgspec.UnsetType | None = msgspec.UNSET


class AssembleNamedBody(AssembleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of ``AssembleBody`` with the name of the context."""

    context: str


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """An assembled context; ``cost`` is in nano-USD, or null if the price is unknown."""

    context_id: str
    record_hash: str
    content_hash: str
    content: str
    tokens: int
    cost: int | None
    freshness_status: FreshnessStatus
    freshness_violations: Sequence[FreshnessViolation]
    freshness_sla_ms: int | None
    interaction_ref: Mapping[str, Any] | None
    lineage: ContextLineage
    meta: Mapping[str, Any]


def assembled(context: Context) -> Assembled:
    """Return the response body of an assembled context."""
    names = Assembled.__struct_fields__
    same: dict[str, Any] = {name: getattr(context, name) for name in names if name != "cost"}
    return Assembled(**same, cost=context.cost_nano_usd)
