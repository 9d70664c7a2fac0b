"""Bodies of the routes for backfills."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.api.kinds import Moment


class BackfillBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a backfill."""

    since: Moment | None = None
    until: Moment | None = None
    switch: Annotated[
        bool, Meta(description="Serve the new version when it is ready.", examples=[False])
    ] = False


class CompareBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a comparison of two versions."""

    limit: Annotated[
        int, Meta(ge=0, le=1_000, description="How many examples at most.", examples=[10])
    ] = 10


class SwitchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version to serve; without one, that of the backfill."""

    version: (
        Annotated[int, Meta(ge=1, description="The version to serve.", examples=[2])] | None
    ) = None


class CancelledBackfill(msgspec.Struct, frozen=True):
    """The version of a feature that was given up."""

    feature: str
    version: int
