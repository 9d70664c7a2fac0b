"""`headwater prune`: remove old history, events and records."""

from collections.abc import Awaitable
from typing import Annotated

import typer

from headwater.cli.options import (
    AnyStore,
    AsJson,
    StoreOption,
    bare_or_remote,
    command_group,
    option_names,
)
from headwater.cli.output import (
    is_interactive,
    note,
    pluralize,
    print_json,
    print_table,
    second_text,
)
from headwater.cli.runner import run
from headwater.model.admin import PrunedPart, PruneReport

app = command_group("Remove old history, events and records.")

History = Annotated[
    str | None,
    typer.Option(
        metavar="AGE", help="Remove past values that are older: an age such as 400d, 8w or 2y."
    ),
]
Events = Annotated[
    str | None, typer.Option(metavar="AGE", help="Remove events that are older, such as 30d.")
]
Records = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="Remove records of contexts that are older, such as 2y."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the rows and remove nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_NOUNS = {"history": "past value", "events": "event", "records": "record"}


@app.command()
def prune(
    *,
    history: History = None,
    events: Events = None,
    records: Records = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove history, events and records that are older than the given ages.

    Without ages, those of the settings `retention.history`, `retention.events` and
    `retention.records` apply. The current value of every entity stays, however old it is, and so
    do events that a consumer group has not committed. Ages are written as in 36h, 30d, 8w or 2y.
    """
    store = bare_or_remote(file)

    def pruned(*, dry_run: bool) -> PruneReport:
        def call(store: AnyStore) -> Awaitable[PruneReport]:
            return store.admin.prune(
                history=history, events=events, records=records, dry_run=dry_run
            )

        with option_names():
            return run(store, call)

    if not (dry_run or yes):
        counted = pruned(dry_run=True)  # which also finds mistakes
        _check_interactive()
        _confirm(counted)
    report = pruned(dry_run=dry_run)
    if as_json:
        print_json(report)
        return
    if rows := _rows(report):
        print_table(("part", "before", "to remove" if dry_run else "removed"), rows)
    _explain_refusals(report)
    for reason in report.held:
        note(f"Not all was removed: {reason}.")


def _check_interactive() -> None:
    if not is_interactive():
        raise typer.BadParameter(
            "cannot ask for confirmation without a terminal; pass --yes to remove the rows, or "
            "--dry-run to count them"
        )


def _confirm(report: PruneReport) -> None:
    counts = [
        f"{pluralize(rows, _NOUNS[part])} from before {before}"
        for part, before, rows in _rows(report)
    ]
    if counts:
        _explain_refusals(report)
        typer.confirm(f"Remove {', '.join(counts)}? They cannot be restored.", abort=True)


def _explain_refusals(report: PruneReport) -> None:
    part = report.history
    if part is not None:
        verb = "will be" if report.dry_run else "are"
        # The last values stay, so there may be older ones although none is removed.
        condition = "" if part.rows else ", if it has older values"
        note(
            f"Reads of history at moments before {second_text(part.before)} {verb} refused, for "
            f"all features{condition}; files of `headwater history export` still answer them."
        )


def _rows(report: PruneReport) -> list[tuple[str, str | None, int]]:
    parts: dict[str, PrunedPart | None] = {
        "history": report.history,
        "events": report.events,
        "records": report.records,
    }
    return [
        (name, second_text(part.before), part.rows)
        for name, part in parts.items()
        if part is not None
    ]
