"""Bodies of the routes that assemble contexts; the command line prints the same."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.records.lineage import Context


class AssembleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a context, and options that replace declared ones for this call."""

    params: dict[str, Any] = {}
    interaction_ref: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: str | msgspec.UnsetType | None = msgspec.UNSET


class AssembleNamedBody(AssembleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of ``AssembleBody`` with the name of the context."""

    context: str


class Assembled(Context, frozen=True, kw_only=True):
    """An assembled context; ``cost`` is ``cost_nano_usd``, or null if the price is unknown."""

    cost: int | None


def assembled(context: Context) -> Assembled:
    """Return the response body of an assembled context."""
    return Assembled(**msgspec.structs.asdict(context), cost=context.cost_nano_usd)
