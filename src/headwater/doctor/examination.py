"""Running all checks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headwater.backends.inspection import inspect
from headwater.declarations.runtime import runtime_of
from headwater.doctor import configuration, installation, workload
from headwater.model.health import Examination, Finding, Severity
from headwater.store.feature_store import FeatureStore

_NEEDED = frozenset({"connection", "driver", "home", "database", "migrations"})
"""Checks of backends without which the store cannot be opened, or would be created."""

_ORDER: tuple[Severity, ...] = ("ok", "unknown", "warning", "error")


async def examine(
    store: FeatureStore, *, open_breakers: Sequence[str] | None = None
) -> Examination:
    """Examine configuration, installation, backends and workload of a store.

    Circuit breakers are in the memory of workers; None means that these cannot be asked.
    """
    settings, clock = store.settings, store.clock
    registry = runtime_of(store).registry
    backends = await inspect(settings, clock)
    findings = [
        *configuration.findings(settings, registry),
        *await asyncio.to_thread(installation.findings, settings, registry),
        *backends,
    ]
    if not any(finding.check in _NEEDED and finding.severity != "ok" for finding in backends):
        findings += await workload.findings(store, open_breakers)
    return Examination(worst(findings), findings)


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the worst severity."""
    return max((finding.severity for finding in findings), key=_ORDER.index, default="ok")
