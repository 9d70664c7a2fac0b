"""The body of the route that describes the caller of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headwater.core.callers import AccessScope, CallerLimits

Operation = Annotated[
    str, Meta(description="A method and a path of this document.", examples=["GET /v1/contexts"])
]


class CallerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of the request, what its key or token allows, and the server."""

    name: str
    """The name of the key or token, or ``this machine`` if the server requires none."""
    scopes: Sequence[AccessScope]
    """The scopes that the caller has; ``admin`` includes all others, which are listed too."""
    limits: CallerLimits | None
    """The part of the store that the caller may use, or null if it may use all."""
    operations: Sequence[Operation]
    """The operations that scopes and limits allow."""
    key_required: bool
    """Whether the server requires a key or a token."""
    environment: Literal["development", "production"]
    """The setting ``env`` of the server."""
    version: str
    """The version of Headwater that the server runs."""
