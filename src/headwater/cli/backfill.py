"""`headwater backfill`: compute past values of a feature from stored events, and serve them."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from typer.core import TyperGroup

from headwater.cli.options import (
    AsJson,
    FileOption,
    declared_or_remote,
    features_file,
    named_in,
    parse_time,
)
from headwater.cli.output import (
    EMPTY,
    is_interactive,
    note,
    pluralize,
    print_facts,
    print_json,
    print_table,
    second_text,
    span_text,
)
from headwater.cli.runner import run as run_call
from headwater.history.backfill.steps import KEPT_FRESH
from headwater.history.runners import ProcessRunner
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
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import FeaturesFile

_FILES_PER_PROCESS = 4
_SECONDS_BETWEEN_LINES = 10.0
_TITLES: dict[Phase, str] = {
    "export": "Exporting stored events",
    "copy": "Copying values",
    "replay": "Replaying events",
    "install": "Writing values",
    "catch up": "Running newer events",
    "join": "Handing partitions over to workers",
}


class _RunByDefault(TyperGroup):
    """A group in which a word that is not a command is the feature of a backfill."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Compute past values of a feature from stored events, compare and serve them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Feature = Annotated[str, typer.Argument(metavar="FEATURE", help="Name of a triggered feature.")]

Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Keep the values from before this time, and replay the events after it.",
    ),
]

Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Make no new version: add values of before this time to history, for each entity "
        "before its first value.",
    ),
]

Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that replay events. Default: one for each core."),
]

Switch = Annotated[bool, typer.Option("--switch", help="Serve the new version when it is ready.")]

Version = Annotated[
    int | None, typer.Option(min=1, help="The version to serve. Default: that of the backfill.")
]

Limit = Annotated[int, typer.Option(min=0, help="Maximum number of examples.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def run(
    feature: Feature,
    *,
    since: Since = None,
    until: Until = None,
    processes: Processes = None,
    switch: Switch = False,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Compute a new version of a feature from stored events, while the present one is served.

    The events are replayed through the present function. After that, workers keep the new version
    fresh as well; if none are running, this command runs one until they could take over. Run the
    command again to continue after an interruption.
    """
    store = declared_or_remote(file)
    if not isinstance(store, FeatureStore) and processes is not None:
        raise typer.BadParameter(
            f"--processes is for a local store; {store.url} replays the events itself"
        )
    start, end = (None if text is None else parse_time(text) for text in (since, until))
    with named_in(file), shown_progress() as progress:
        options: dict[str, Any] = {"since": start, "until": end, "switch": switch}
        if isinstance(store, FeatureStore):
            options |= _local_replay(file, processes or os.cpu_count() or 1)
        report = run_call(
            store, lambda store: store.backfills.run(feature, progress=progress, **options)
        )
    if as_json:
        print_json(report)
    else:
        print_report(report)


@app.command()
def status(feature: Feature, *, file: FileOption = None, as_json: AsJson = False) -> None:
    """Show how far the backfill of a feature is, and the events that failed in it."""
    with named_in(file):
        progress = run_call(declared_or_remote(file), lambda store: store.backfills.status(feature))
    if as_json:
        print_json(progress)
    else:
        print_status(progress)


@app.command()
def compare(
    feature: Feature, *, limit: Limit = 10, file: FileOption = None, as_json: AsJson = False
) -> None:
    """Show the version that is served and the one that a backfill has made side by side.

    All values that are served are compared, and the history of up to a hundred entities.
    """
    with named_in(file):
        comparison = run_call(
            declared_or_remote(file), lambda store: store.backfills.compare(feature, limit=limit)
        )
    if as_json:
        print_json(comparison)
    else:
        print_comparison(comparison)


@app.command()
def switch(
    feature: Feature,
    *,
    version: Version = None,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Serve the version that a backfill has made in place of the present one."""
    with named_in(file):
        report = run_call(
            declared_or_remote(file), lambda store: store.backfills.switch(feature, version=version)
        )
    if as_json:
        print_json(report)
        return
    seconds = round(KEPT_FRESH.total_seconds())
    typer.echo(
        f"Version {report.version} of {feature} is served now; other processes follow within about "
        f"a second.\nVersion {report.before} is kept fresh for {seconds} seconds more. Until then, "
        f"`headwater backfill switch {feature} --version {report.before}` serves it again."
    )


@app.command()
def cancel(
    feature: Feature, *, yes: Yes = False, file: FileOption = None, as_json: AsJson = False
) -> None:
    """Give up the backfill of a feature and remove its values; the served version stays."""
    store = declared_or_remote(file)
    with named_in(file):
        progress = run_call(store, lambda store: store.backfills.status(feature))
        if not yes:
            if not is_interactive():
                raise typer.BadParameter(
                    "cannot ask for confirmation without a terminal; pass --yes to cancel it"
                )
            question = f"Remove version {progress.version} of {feature}, which is {progress.state}?"
            typer.confirm(question, abort=True)
        number = run_call(store, lambda store: store.backfills.cancel(feature))
    if as_json:
        print_json({"feature": feature, "cancelled": number})
    else:
        typer.echo(f"Removed version {number} of {feature}.")


def _local_replay(file: Path | None, processes: int) -> dict[str, Any]:
    """Return the options of a replay in several processes of this machine."""
    return {
        "source": FeaturesFile(str(features_file(file))),
        "runner": ProcessRunner(processes),
        "files": 1 << (_FILES_PER_PROCESS * processes - 1).bit_length(),
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
