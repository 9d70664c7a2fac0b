"""The output of `headwater backfill`: progress, status, and two versions side by side."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater.cli.output import (
    EMPTY,
    note,
    pluralize,
    print_facts,
    print_table,
    second_text,
    span_text,
)
from headwater.model.backfills import (
    BackfillProgress,
    BackfillReport,
    BackfillStatus,
    Comparison,
    Counts,
    OnProgress,
    Phase,
)
from headwater.model.dead_letters import DeadLetter

_SECONDS_BETWEEN_LINES = 10.0
_TITLES: dict[Phase, str] = {
    "export": "Exporting stored events",
    "copy": "Copying values",
    "replay": "Replaying events",
    "install": "Writing values",
    "catch up": "Running newer events",
    "join": "Handing partitions over to workers",
}


@contextmanager
def shown_progress() -> Iterator[OnProgress]:
    """Show how far a backfill is: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines().show
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Beginning", total=None, left="")

        def update(progress: BackfillProgress) -> None:
            bar.update(
                task,
                description=_TITLES[progress.phase],
                completed=progress.done,
                total=progress.total,
                left=_left(progress),
            )

        yield update


class _Lines:
    """Progress as lines: one at the start of each phase, and one from time to time."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._printed = 0.0

    def show(self, progress: BackfillProgress) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if progress.phase == self._phase and now - self._printed < _SECONDS_BETWEEN_LINES:
            return
        self._phase, self._printed = progress.phase, now
        total = "" if progress.total is None else f" of {progress.total:,}"
        count = f": {progress.done:,}{total}" if progress.done or total else ""
        left = _left(progress)
        note(f"{_TITLES[progress.phase]}{count}{left and ', ' + left}")


def _left(progress: BackfillProgress) -> str:
    seconds = progress.seconds_left
    return f"{span_text(round(1000 * seconds))} left" if seconds else ""


def print_report(report: BackfillReport) -> None:
    """Print what a backfill has made, and what to do next."""
    feature, replayed = report.feature, report.replayed
    if replayed is not None:
        events, values = pluralize(replayed.events, "event"), pluralize(replayed.values, "value")
        typer.echo(f"Replayed {events} of {feature}: {values}.")
        if replayed.failures:
            typer.echo(f"{pluralize(replayed.failures, 'event')} failed:")
            _print_failures(report.failures)
        for name, count in replayed.unstored.items():
            typer.echo(
                f"The function set {name} {count} times, which was not stored; backfill {name} if "
                "it needs these values."
            )
    if report.version is None:
        _print_added(feature, has_values=bool(replayed and replayed.values))
    elif report.is_served:
        typer.echo(f"Version {report.version} of {feature} is served now.")
    else:
        typer.echo(
            f"Version {report.version} of {feature} is ready. Compare it with the one that is "
            f"served: `headwater backfill compare {feature}`. Then serve it: `headwater backfill "
            f"switch {feature}`."
        )


def _print_added(feature: str, *, has_values: bool) -> None:
    if not has_values:
        typer.echo(f"No values were added to the history of {feature}.")
        return
    typer.echo(
        f"Values were added to the history of {feature}; entities without a value are served their "
        "last one, and the others are served the same as before. Events after --until were not "
        f"replayed; run `headwater backfill {feature}` without it to count them as well."
    )


def print_status(status: BackfillStatus) -> None:
    """Print how far a backfill is, and the events that failed in it."""
    print_facts(
        {
            "feature": status.feature,
            "version": status.version,
            "state": status.state,
            "begun": second_text(status.created_at),
            "since": second_text(status.since) or "the first event",
            "replayed": pluralize(status.replayed, "event"),
            "waiting": pluralize(status.waiting, "newer event"),
            "joined": f"{status.joined} of {pluralize(status.partitions, 'partition')}",
            "failed": pluralize(len(status.failures), "event"),
        }
    )
    if status.failures:
        typer.echo()
        _print_failures(status.failures)
    if status.state != "ready":
        typer.echo(f"If no command is running it, `headwater backfill {status.feature}` continues.")


def _print_failures(failures: Sequence[DeadLetter]) -> None:
    rows = [
        (failure.event.event_id, failure.event.entity_id, failure.event.timestamp, failure.error)
        for failure in failures
    ]
    print_table(("event", "entity id", "timestamp", "error"), rows)


def print_comparison(found: Comparison) -> None:
    """Print two versions side by side."""
    typer.echo(f"{found.feature}: version {found.old} is served, version {found.new} is new.\n")
    columns = ("", "equal", "different", f"only {found.old}", f"only {found.new}")
    sample = f"moments in the history of {pluralize(found.sampled_entities, 'entity', 'entities')}"
    print_table(columns, [("served values", *_row(found.online)), (sample, *_row(found.history))])
    if found.numbers is not None:
        numbers = found.numbers
        typer.echo(
            f"\nVersion {found.new} minus version {found.old}: mean {numbers.mean:+.6g}, smallest "
            f"{numbers.smallest:+.6g}, largest {numbers.largest:+.6g}."
        )
    if found.examples:
        typer.echo()
        print_table(
            ("entity id", f"version {found.old}", f"version {found.new}"),
            [
                (example.entity_id, _text(example.old), _text(example.new))
                for example in found.examples
            ],
        )


def _row(counts: Counts) -> tuple[int, int, int, int]:
    return counts.equal, counts.different, counts.only_old, counts.only_new


def _text(value: bytes | None) -> str:
    return EMPTY if value is None else bytes(value).decode()
