"""The report of a run as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from chaos.run import ChaosReport

_MOST_VIOLATIONS = 30


def write(console: Console, report: ChaosReport) -> None:
    """Print the numbers of a run and its violations."""
    shown = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    shown.add_column("what")
    shown.add_column("number", justify="right")
    for what, number in _rows(report):
        shown.add_row(what, number)
    console.print(shown)
    for violation in violations(report)[:_MOST_VIOLATIONS]:
        console.print(violation, markup=False, highlight=False)


def violations(report: ChaosReport) -> list[str]:
    """Return all violations of a run."""
    return [*report.violations, *report.verdict.violations]


def _rows(report: ChaosReport) -> Iterator[tuple[str, str]]:
    order, verdict = report.order, report.verdict
    numbers: Mapping[str, int] = {
        "seed": order.seed,
        "workers": order.workers,
        "events": order.events,
        "acknowledged": report.acknowledged,
        "duplicates published": report.duplicates,
        "malformed entries": report.malformed,
        **report.faults,
        **{f"workers that ended with {code}": n for code, n in sorted(report.exits.items())},
    }
    for what, number in numbers.items():
        yield what, f"{number:,}"
    for feature, tally in verdict.tallies.items():
        counts = f"{tally.lost:,} / {tally.doubled:,} / {tally.reordered:,}"
        yield f"{feature}: lost / doubled / reordered", counts
    numbers = {
        "accounts with events after the deploy": report.deployed,
        "deploys in which old workers resumed": report.fallbacks,
        "events with one attempt, circuit breaker open": verdict.breaker.opened,
        "events retried again, circuit breaker closed": verdict.breaker.closed,
        "events published again after a restore": report.published_again,
        "lost records of contexts": report.lost_records,
        "dead letters expected": verdict.letters_expected,
        "dead letters found": verdict.letters_found,
        "pending": report.pending,
        "differences between online and history": verdict.differences,
        "violations": len(violations(report)),
    }
    for what, number in numbers.items():
        yield what, f"{number:,}"
    for kind, share in report.calls.longest.items():
        yield (
            f"{kind}: refused, longest call / timeout",
            f"{report.calls.refused[kind]:,}, {share:.2f}",
        )
    yield "seconds", f"{report.seconds:.1f}"
    yield "events per second", f"{order.events / report.seconds:,.0f}"
