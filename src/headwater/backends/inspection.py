"""Examining the servers or the folder of a store, whether or not it can be opened."""

from __future__ import annotations

import asyncio
from importlib import import_module

from headwater.core.clock import Clock
from headwater.errors import ConfigError
from headwater.model.health import Finding, Findings
from headwater.settings.environments import on_servers
from headwater.settings.schema import Settings

_SERVERS = (
    ("message bus", "headwater.backends.redis.inspection", "redis"),
    ("relational store", "headwater.backends.postgres.inspection", "postgres"),
)


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Return the findings of each backend that the settings name."""
    try:
        is_on_servers = on_servers(settings)
    except ConfigError as error:
        findings = Findings("message bus", "redis.url and postgres.url")
        findings.error("connection", str(error), "set both URLs, or neither")
        return findings.all
    if not is_on_servers:
        embedded = import_module("headwater.backends.sqlite.inspection")
        inspected: list[Finding] = await asyncio.to_thread(embedded.inspect, settings)
        return inspected
    parts = await asyncio.gather(
        *(_inspect_server(settings, clock, *server) for server in _SERVERS)
    )
    return [finding for part in parts for finding in part]


async def _inspect_server(
    settings: Settings, clock: Clock, area: str, module: str, extra: str
) -> list[Finding]:
    try:
        backend = import_module(module)
    except ImportError as error:
        findings = Findings(area, f"the driver of {extra}")
        findings.error("driver", f"{error}", f"pip install 'headwater[{extra}]'")
        return findings.all
    inspected: list[Finding] = await backend.inspect(settings, clock)
    return inspected
