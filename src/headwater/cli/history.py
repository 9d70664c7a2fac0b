"""`headwater history` and `headwater backfill`: read, import, export and recompute past values."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from typer.core import TyperGroup

from headwater.backends.runners.choice import runner_of
from headwater.backends.runners.processes import ProcessRunner
from headwater.cli.commands import (
    DECLARED,
    STORE,
    AnyStore,
    CommandCall,
    Commands,
    FileParameter,
    Yes,
    features_file,
    option_names,
    parse_time,
)
from headwater.cli.output import (
    ProgressLines,
    bar,
    confirm,
    note,
    pluralize,
    print_facts,
    print_table,
    progress_bar,
    second_text,
    span_text,
)
from headwater.core.logging import log
from headwater.errors import InvalidInputError
from headwater.history.backfill.steps import KEPT_FRESH
from headwater.model.backfills import BackfillProgress, BackfillReport, OnProgress, Phase
from headwater.model.dead_letters import DeadLetter
from headwater.model.history import ImportReport
from headwater.store.feature_store import FeatureStore
from headwater.store.task_store import FeaturesFile


def _by_default(command: str) -> type[TyperGroup]:
    """Return a group in which a word that is not a command is the argument of this one."""

    class WithDefault(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
            is_command = args[0] in self.commands or args[0].startswith("-")
            return super().resolve_command(ctx, args if is_command else [command, *args])

    return WithDefault


# -f names features here, so the features file has no short option.
_FILE = FileParameter(
    typer.Option(
        "--file", metavar="FILE", help="Features file or module. Default: the setting `features`."
    ),
    is_declared=True,
)
app = Commands()
history = Commands(
    app,
    "history",
    "Read the past values of features for the rows of a file; import and export history.",
    file=_FILE,
    cls=_by_default("read"),
)
backfill = Commands(
    app,
    "backfill",
    "Compute past values of a feature from stored events, compare and serve them.",
    file=DECLARED,
    cls=_by_default("run"),
)
_TITLES: dict[Phase, str] = {
    "export": "Exporting stored events",
    "copy": "Copying values",
    "replay": "Replaying events",
    "install": "Writing values",
    "catch up": "Running newer events",
    "join": "Handing partitions over to workers",
}
Feature = Annotated[str, typer.Argument(metavar="FEATURE", help="Name of a triggered feature.")]
_EXPORTED = "Names of features, separated by commas; can be repeated. Default: all features."
Features = Annotated[
    list[str],
    typer.Option(
        "--feature",
        "-f",
        metavar="NAMES",
        help="Names of features of one entity, separated by commas; can be repeated.",
    ),
]


@history.command(file=STORE)
def export(call: CommandCall, folder: Path) -> None:
    """Write the history of all features to Parquet files; again, add the rows since then.

    `headwater history FRAME --exported FOLDER` reads them without loading the database. An export
    that was interrupted is simply run again. Values that are pruned or dropped later stay in the
    files.

    Args:
        folder: New or empty folder, or one with an earlier export of the same store.
    """
    report = call.run(lambda store: store.history.export(folder))
    added = pluralize(report.added, "row") if report.added else "no new rows"
    rows, files = pluralize(report.rows, "row"), pluralize(report.files, "file")
    call.show(report, f"Exported {added}; {folder} has {rows} in {files}.")


@history.command("export-feast")
def export_feast(
    call: CommandCall,
    folder: Path,
    *,
    features: Annotated[
        list[str] | None, typer.Option("--feature", "-f", metavar="NAMES", help=_EXPORTED)
    ] = None,
) -> None:
    """Write history as a repository that Feast reads: Parquet files, definitions and settings.

    An earlier export in the folder is replaced, except its `feature_store.yaml`. Features that have
    no stored history are left out and named.

    Args:
        folder: New or empty folder, or one with an earlier export for Feast.
    """
    names = None if features is None else _names(features)
    report = call.run(lambda store: store.history.export_feast(folder, names), has_names=True)
    rows = [(view.name, view.entity, len(view.features), view.rows) for view in report.views]

    def show() -> None:
        print_table(("view", "entity", "features", "rows"), rows)
        for name, reason in report.left_out.items():
            typer.echo(f"Left out {name}: {reason}.")
        typer.echo(f"Next: cd {folder} && feast apply")

    call.show(report, show)


@history.command()
def read(
    call: CommandCall,
    frame: Path,
    *,
    features: Features,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    at: str = "timestamp",
    known: bool = False,
    as_of: bool = False,
    exported: Path | None = None,
    snapshot: int | None = None,
) -> None:
    """Add a column for each feature to the rows of a file, with its value at the time of the row.

    `headwater history FRAME …` is short for `headwater history read FRAME …`. The rows keep their
    order, and no value is later than its row. The file may be larger than memory.

    Args:
        frame: Parquet or CSV file with a column of entity ids, named like the id field of the
            entity, and a column of times with a time zone.
        output: Parquet or CSV file to write, which is replaced if it exists. Default: FRAME with
            the ending `.features.parquet`, if it does not exist.
        at COLUMN: Column with the times.
        known: Only values that had been written by that time, as they were served.
        as_of: Add a column FEATURE__as_of with the time of each value.
        exported FOLDER: Read stored values from this folder, which `headwater history export`
            wrote.
        snapshot ID: Read stored values from a snapshot of the lake; `headwater lake compact` makes
            one and shows its id.
    """
    with call.named(), option_names(), progress_bar("Reading history") as progress:
        options: dict[str, Any] = {
            "at": at,
            "known": known,
            "with_as_of": as_of,
            "output": output,
            "snapshot": snapshot,
            "progress": progress,
        }
        if exported is None:
            written = call.run(
                lambda store: store.get_historical_features(frame, _names(features), **options)
            )
        else:
            written = _read_export(call, frame, _names(features), exported, options)
    call.show({"output": str(written)}, f"Wrote {written}.")


def _read_export(
    call: CommandCall, frame: Path, names: Sequence[str], exported: Path, options: dict[str, Any]
) -> Any:
    """Read an export without opening the store, which may be on another machine."""
    if (server := call.server) is not None:
        raise typer.BadParameter(
            f"--exported reads files of this machine, and {server.url} was named; pass --file with "
            "a features file in place of --url and HEADWATER_CLIENT_URL, or leave out --exported"
        )

    async def read() -> Any:
        store = call.local
        try:
            return await store.get_historical_features(frame, names, exported=exported, **options)
        finally:
            await store.close()

    return asyncio.run(read())


@history.command("import")
def import_(
    call: CommandCall,
    table: Path | None = None,
    *,
    features: Features,
    query: str | None = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="LOCATION")] = None,
    id_: Annotated[str | None, typer.Option("--id", metavar="COLUMN")] = None,
    value: str | None = None,
    at: str | None = None,
    written: str | None = None,
    time_zone: str | None = None,
) -> None:
    """Add the values of a feature table to history, with the times that they are of.

    Rows that are in history already are left out, so it is safe to repeat an import. Online values
    do not change: `headwater rebuild` restores the last values from history. Only the rows of a
    family of windows, which are what single events contributed, count online at once.

    Args:
        table FILE: Parquet or CSV file with ids, times and values of features.
        query SQL: Import the rows of this query in place of a file, with --from.
        from_: Where the query runs: a URL (postgres://, snowflake://, bigquery://), or a DuckDB or
            SQLite file.
        id_: Column with the entity ids. Default: the id field of the entity.
        value COLUMN: Column with the values, if only one feature is imported. Default: its name, or
            `value`; of contributions with fields, the columns with the names of the fields.
        at COLUMN: Column with the times that the values are of. Default: `event_timestamp` or
            `timestamp`.
        written COLUMN: Column with the times at which values were written. Default: created or
            created_timestamp; the current time if there is no such column.
        time_zone ZONE: Time zone of times that have none, such as UTC; without it, they are
            refused.
    """

    if (query is None) != (from_ is None) or (query is None) == (table is None):
        raise typer.BadParameter("name a file, or pass --query and --from, and not both")
    columns = {"id": id_, "value": value, "at": at, "written": written, "time_zone": time_zone}

    async def load(store: AnyStore) -> ImportReport:
        names, history = _names(features), store.history
        with progress_bar("Importing") as progress:
            if table is not None:
                return await history.import_file(table, names, progress=progress, **columns)
            note("Running the query")
            return await history.import_query(
                query or "", names, location=from_ or "", progress=progress, **columns
            )

    with option_names():
        report = call.run(load, create=True, has_names=True)
    old = report.values - report.added - report.erased
    values = pluralize(report.added, "new value" if old else "value")
    present = f"; {old:,} {'was' if old == 1 else 'were'} there already" if old else ""
    rows = pluralize(report.rows, "row")
    missing = f"{pluralize(report.missing, 'value')} missing in the file and left out."
    erased = f"{pluralize(report.erased, 'value')} of erased entities left out."
    online = (
        f"The windows of {pluralize(report.states, 'entity', 'entities')} count them from now on."
        if report.states and report.added
        else "Online values have not changed; `headwater rebuild` restores them from history."
    )
    call.show(
        report,
        f"Imported {values} of {rows} into history{present}.",
        missing if report.missing else None,
        erased if report.erased else None,
        online,
    )


def _names(features: list[str]) -> list[str]:
    names = [name.strip() for text in features for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidInputError("name at least one feature, as in -f total_spend")
    return names


@backfill.command()
def run(
    call: CommandCall,
    feature: Feature,
    *,
    since: str | None = None,
    until: str | None = None,
    processes: Annotated[int | None, typer.Option(min=1)] = None,
    switch: bool = False,
) -> None:
    """Compute a new version of a feature from stored events, while the present one is served.

    The events are replayed through the present function. After that, workers keep the new version
    fresh as well; if none are running, this command runs one until they could take over. Run the
    command again to continue after an interruption.

    Args:
        since TIME: Keep the values from before this time, and replay the events after it.
        until TIME: Make no new version: add values of before this time to history, for each entity
            before its first value.
        processes: Local processes that replay events, in place of those of the setting runner.
        switch: Serve the new version when it is ready.
    """
    store = call.store
    options: dict[str, Any] = {"switch": switch}
    if isinstance(store, FeatureStore):
        settings = store.settings
        options |= {
            "source": FeaturesFile.of(features_file(call.file), settings),
            "runner": ProcessRunner(processes) if processes else runner_of(settings.runner),
        }
        if store.settings.log.level == "info":
            # The worker of this command would log each event between the lines of the progress.
            log.configure("warning", store.settings.log.format)
    elif processes is not None:
        raise typer.BadParameter(
            f"--processes is for a local store; {store.url} replays the events itself"
        )
    start, end = (None if text is None else parse_time(text) for text in (since, until))
    with _shown_progress() as progress:
        report = call.run(
            lambda store: store.backfills.run(
                feature, since=start, until=end, progress=progress, **options
            ),
            has_names=True,
        )
    call.show(report, lambda: _print_report(report))


@backfill.command()
def status(call: CommandCall, feature: Feature) -> None:
    """Show how far the backfill of a feature is, and the events that failed in it."""
    status = call.run(lambda store: store.backfills.status(feature), has_names=True)

    def print_status() -> None:
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
            typer.echo(f"If no command is running it, `headwater backfill {feature}` continues.")

    call.show(status, print_status)


@backfill.command()
def compare(
    call: CommandCall,
    feature: Feature,
    *,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of examples.")] = 10,
) -> None:
    """Show the version that is served and the one that a backfill has made side by side.

    All values that are served are compared, and the history of up to a hundred entities.
    """
    compared = call.run(lambda store: store.backfills.compare(feature, limit=limit), has_names=True)
    old, new = compared.old, compared.new

    def print_comparison() -> None:
        typer.echo(f"{compared.feature}: version {old} is served, version {new} is new.\n")
        entities = pluralize(compared.sampled_entities, "entity", "entities")
        print_table(
            ("", "equal", "different", f"only {old}", f"only {new}"),
            [
                (title, counts.equal, counts.different, counts.only_old, counts.only_new)
                for title, counts in (
                    ("served values", compared.online),
                    (f"moments in the history of {entities}", compared.history),
                )
            ],
        )
        if compared.numbers is not None:
            numbers = compared.numbers
            typer.echo(
                f"\nVersion {new} minus version {old}: mean {numbers.mean:+.6g}, smallest "
                f"{numbers.smallest:+.6g}, largest {numbers.largest:+.6g}."
            )
        if compared.examples:
            typer.echo()
            rows = [
                (e.entity_id, *(value and bytes(value).decode() for value in (e.old, e.new)))
                for e in compared.examples
            ]
            print_table(("entity id", f"version {old}", f"version {new}"), rows)

    call.show(compared, print_comparison)


@backfill.command()
def switch(
    call: CommandCall,
    feature: Feature,
    *,
    version: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Serve the version that a backfill has made in place of the present one.

    Args:
        version: The version to serve. Default: that of the backfill.
    """
    report = call.run(
        lambda store: store.backfills.switch(feature, version=version), has_names=True
    )
    seconds = round(KEPT_FRESH.total_seconds())
    call.show(
        report,
        f"Version {report.version} of {feature} is served now; other processes follow within about "
        f"a second.\nVersion {report.before} is kept fresh for {seconds} seconds more. Until then, "
        f"`headwater backfill switch {feature} --version {report.before}` serves it again.",
    )


@backfill.command()
def cancel(call: CommandCall, feature: Feature, *, yes: Yes = False) -> None:
    """Give up the backfill of a feature and remove its values; the served version stays."""
    progress = call.run(lambda store: store.backfills.status(feature), has_names=True)
    if not yes:
        question = f"Remove version {progress.version} of {feature}, which is {progress.state}?"
        confirm(question, "cancel it")
    number = call.run(lambda store: store.backfills.cancel(feature), has_names=True)
    cancelled = {"feature": feature, "cancelled": number}
    call.show(cancelled, f"Removed version {number} of {feature}.")


@contextmanager
def _shown_progress() -> Iterator[OnProgress]:
    """Show how far a backfill is: a bar on a terminal, lines elsewhere."""
    lines = ProgressLines()
    title, left_text = TextColumn("{task.description}"), TextColumn("{task.fields[left]}")
    with bar(title, BarColumn(), MofNCompleteColumn(), left_text, left="") as update:

        def show(progress: BackfillProgress) -> None:
            title, done, total = _TITLES[progress.phase], progress.done, progress.total
            seconds = progress.seconds_left
            left = f"{span_text(round(1000 * seconds))} left" if seconds else ""
            if update:
                update(description=title, completed=done, total=total, left=left)
            elif lines.is_due(progress.phase):
                of_total = "" if total is None else f" of {total:,}"
                count = f": {done:,}{of_total}" if done or of_total else ""
                note(f"{title}{count}{left and ', ' + left}")

        yield show


def _print_report(report: BackfillReport) -> None:
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
    if report.version is None and not (replayed and replayed.values):
        typer.echo(f"No values were added to the history of {feature}.")
    elif report.version is None:
        typer.echo(
            f"Values were added to the history of {feature}; entities without a value are served "
            "their last one, and the others are served the same as before. Events after --until "
            f"were not replayed; run `headwater backfill {feature}` without it to count them as "
            "well."
        )
    elif report.is_served:
        typer.echo(f"Version {report.version} of {feature} is served now.")
    else:
        typer.echo(
            f"Version {report.version} of {feature} is ready. Compare it with the one that is "
            f"served: `headwater backfill compare {feature}`. Then serve it: `headwater backfill "
            f"switch {feature}`."
        )


def _print_failures(failures: Sequence[DeadLetter]) -> None:
    rows = [
        (failure.event.event_id, failure.event.entity_id, failure.event.timestamp, failure.error)
        for failure in failures
    ]
    print_table(("event", "entity id", "timestamp", "error"), rows)
