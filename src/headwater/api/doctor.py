"""The body of the route that examines an installation."""

from __future__ import annotations

import msgspec

from headwater.core.findings import Finding, Severity


class Examination(msgspec.Struct, frozen=True):
    """The findings of all checks; ``status`` is the worst of them."""

    status: Severity
    findings: list[Finding]
