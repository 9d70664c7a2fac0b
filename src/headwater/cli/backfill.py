"""`headwater backfill`: compute past values of a feature from stored events, and serve them."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli.backfill_output import (
    print_comparison,
    print_report,
    print_status,
    shown_progress,
)
from headwater.cli.options import (
    AsJson,
    FileOption,
    declared_or_remote,
    features_file,
    named_in,
    parse_time,
)
from headwater.cli.output import is_interactive, print_json
from headwater.cli.runner import run as run_call
from headwater.history.backfill.steps import KEPT_FRESH
from headwater.history.runners import ProcessRunner
from headwater.store.backfills import FeaturesFile
from headwater.store.feature_store import FeatureStore

_FILES_PER_PROCESS = 4


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
