"""The health of a store: probes and what they return."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.core.short_repr import short_repr


class Alive(msgspec.Struct, frozen=True):
    """The process is running."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """The health of each part of the store; ``degraded`` if only optional parts have failed."""

    status: Literal["ready", "degraded", "not ready"]
    parts: list[Health]


class Health(msgspec.Struct, frozen=True):
    """Whether a part of the environment works, and the problem and its remedy if it does not.

    While a part that is not needed is down, events are still accepted and values served.
    """

    name: str
    ok: bool
    detail: str = ""
    needed: bool = True

    __repr__ = short_repr("name", "ok", "detail")
