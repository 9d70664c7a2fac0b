"""Bodies of the routes that assemble contexts; the command line prints the same."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.api.kinds import ContextName, DurationText, ExternalName
from headwater.contexts.recorded.replay import Mode
from headwater.records.lineage import Context

Params = Annotated[
    dict[str, Any],
    Meta(
        description="The arguments of the context's function, by name.",
        examples=[{"user_id": "ada", "question": "Where is my parcel?"}],
    ),
]
InteractionRef = Annotated[
    dict[str, Any],
    Meta(
        description="A reference that is recorded and returned; no name begins with a dollar.",
        examples=[{"call_id": "c-9", "turn_id": "t-3", "turn_index": 3}],
        extra_json_schema={"propertyNames": {"pattern": "^(?!\\$)"}},
    ),
]
MaxTokens = Annotated[
    int,
    Meta(
        description="A budget below the declared one.",
        examples=[400],
        extra_json_schema={"minimum": 1, "maximum": 2**53 - 1},
    ),
]


class AssembleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a context, and options that replace declared ones for this call."""

    params: Params = {}
    interaction_ref: InteractionRef | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: MaxTokens | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: DurationText | msgspec.UnsetType | None = msgspec.UNSET


class AssembleNamedBody(AssembleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of ``AssembleBody`` with the name of the context."""

    context: ContextName


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to replay a recorded context."""

    mode: Annotated[Mode, Meta(description="What is done again.", examples=["reassemble"])] = "show"


class ExternalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A text that was assembled elsewhere, and its inputs."""

    name: ExternalName
    content: Annotated[str, Meta(description="The text.", examples=["Hello Ada"])]
    inputs: Annotated[
        dict[str, Any],
        Meta(description="What it was assembled from, by name.", examples=[{"user_id": "ada"}]),
    ] = {}
    model: Annotated[str, Meta(description="The model it is for.", examples=["gpt-4o"])] | None = (
        None
    )
    version: (
        Annotated[str, Meta(description="A version of its template.", examples=["3"])] | None
    ) = None
    interaction_ref: InteractionRef | None = None


class Assembled(Context, frozen=True, kw_only=True):
    """An assembled context; ``cost`` is ``cost_nano_usd``, or null if the price is unknown."""

    cost: int | None


def assembled(context: Context) -> Assembled:
    """Return the response body of an assembled context."""
    return Assembled(**msgspec.structs.asdict(context), cost=context.cost_nano_usd)
