"""The report of a soak: latencies of each kind of request, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from bench.load import percentile
from soak.verdict import Check, Findings, checks, megabytes

_SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))


def write(console: Console, found: Findings) -> None:
    """Print the report."""
    load = found.load
    console.print(
        f"capacity {found.capacity:,.0f} requests/s; sent {load.rate:,.0f} a second for "
        f"{load.seconds:,.0f} s, {load.answered:,} answered"
    )
    console.print(latencies(found))
    console.print(server(found))
    console.print(verdict(checks(found)))


def latencies(found: Findings) -> Table:
    """Return the latencies in milliseconds, from the time at which each request was due."""
    shown = Table(box=box.SIMPLE, pad_edge=False)
    shown.add_column("request", no_wrap=True)
    for heading in ("number", *(f"{name}, ms" for name, _ in _SHARES), "max, ms", "errors"):
        shown.add_column(heading, justify="right")
    for kind, measured in sorted(found.load.latencies.items()):
        ordered = sorted(measured)
        errors = sum(n for (name, _), n in found.load.errors.items() if name == kind)
        times = [percentile(ordered, share) for _, share in _SHARES] + [ordered[-1]]
        shown.add_row(
            kind, f"{len(ordered):,}", *(f"{each * 1000:.1f}" for each in times), f"{errors:,}"
        )
    return shown


def server(found: Findings) -> Table:
    """Return the state of the server over time."""
    shown = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("time", "processes", "own memory", "resident", "descriptors", "WAL"):
        shown.add_column(heading, justify="right")
    shown.add_column("event loop lag, p50 and max", justify="right")
    samples = found.samples
    parts = min(8, len(samples))
    for number in range(parts):
        part = samples[number * len(samples) // parts : (number + 1) * len(samples) // parts]
        last, lags = part[-1], sorted(each.loop_lag for each in part)
        shown.add_row(
            f"{last.seconds:,.0f} s",
            str(last.processes),
            megabytes(last.anonymous),
            megabytes(last.resident),
            str(last.descriptors),
            megabytes(last.wal),
            f"{percentile(lags, 0.5) * 1000:.1f} ms, {lags[-1] * 1000:.1f} ms",
        )
    return shown


def verdict(judged: Sequence[Check]) -> Table:
    """Return what was measured next to what is allowed."""
    shown = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("check", "measured", "allowed", "verdict"):
        shown.add_column(heading, no_wrap=heading != "measured")
    for check in judged:
        shown.add_row(*check[:3], "kept" if check.is_kept else "BROKEN")
    return shown
