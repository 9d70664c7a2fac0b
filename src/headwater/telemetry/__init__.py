"""Telemetry for other systems: spans for OpenTelemetry, panels for Grafana, rules for Prometheus.

No other package imports OpenTelemetry.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from headwater.core.tracing import Tracer
from headwater.errors import MissingExtraError
from headwater.settings.groups import TelemetrySettings
from headwater.settings.schema import Settings


def tracer_of(settings: Settings) -> Tracer | None:
    """Return the tracer of the settings, or None if tracing is off.

    All stores of a process with the same settings share one, and its connection. Raise
    `MissingExtraError` if OpenTelemetry is not installed.
    """
    if not settings.telemetry.enabled:
        return None
    # Where records hold no content, traces never do.
    has_content = settings.telemetry.content and settings.record.include_content
    return _tracer(settings.telemetry, has_content)


@lru_cache
def _tracer(settings: TelemetrySettings, has_content: bool) -> Tracer:  # noqa: FBT001 - a key
    try:
        module = import_module("headwater.telemetry.open_telemetry")
    except ImportError as error:
        raise MissingExtraError("OpenTelemetry", "otel") from error
    tracer: Tracer = module.open_tracer(settings, has_content=has_content)
    return tracer
