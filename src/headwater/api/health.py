"""Bodies of the probes."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.ports import Health


class Alive(msgspec.Struct, frozen=True):
    """The process is running."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """The health of each part of the store; ``degraded`` if only optional parts have failed."""

    status: Literal["ready", "degraded", "not ready"]
    parts: list[Health]
