"""`headwater audit`: compare online values with history."""

from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, declared_or_remote
from headwater.cli.output import note, pluralize, print_json, print_table, progress_bar
from headwater.cli.runner import run
from headwater.model.admin import AuditReport, ServedReport, StoredValue

app = command_group("Compare online values with history.")


@app.command()
def audit(
    file: FileArgument = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="Stop after this many differences.")] = 100,
    records: Annotated[
        int,
        typer.Option(min=0, help="Compare the values of this many recorded contexts; 0 for none."),
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Compare the online value of every declared feature with the latest value in history.

    Also compare the values that recorded contexts got with those that history gives as known at
    that moment. Exit with 1 if values differ. It is safe to run this while workers are running: a
    difference counts only if it is still there after a second read.
    """
    with progress_bar("Comparing") as progress:
        report = run(
            declared_or_remote(file),
            lambda store: store.admin.audit(limit=limit, records=records, progress=progress),
        )
    if as_json:
        print_json(report)
    else:
        _print(report)
        if report.served.records:
            _print_served(report.served)
    raise typer.Exit(1 if report.differences or report.served.different else 0)


def _print(report: AuditReport) -> None:
    if report.differences:
        rows = [
            (d.entity, d.entity_id, d.feature, *_cells(d.online), *_cells(d.history))
            for d in report.differences
        ]
        columns = ("entity", "entity id", "feature", "online", "as of", "history", "as of")
        print_table(columns, rows)
    else:
        entities = pluralize(report.entity_ids, "entity", "entities")
        typer.echo(f"No differences: compared {pluralize(report.values, 'value')} of {entities}.")
    if report.not_compared:
        names = ", ".join(report.not_compared)
        note(f"Not compared, because their stored values are only a cache: {names}.")
    if not report.complete:
        listed = pluralize(len(report.differences), "difference")
        note(f"There are more than {listed}; pass --limit to list more.")
    if report.differences:
        note("Run `headwater rebuild` to restore values that are missing or older online.")


def _print_served(served: ServedReport) -> None:
    counts = f"{served.equal} equal, {served.different} different"
    typer.echo(
        f"Recorded contexts: {pluralize(served.records, 'record')} with "
        f"{pluralize(served.values, 'value')}: {counts} in history."
    )
    if served.differences:
        rows = [
            (d.context_id, d.feature, d.entity_id, d.at, d.recorded, d.history)
            for d in served.differences
        ]
        columns = ("context", "feature", "entity id", "at", "recorded", "known in history")
        print_table(columns, rows)
    for name, hint in {d.feature: d.hint for d in served.differences if d.hint}.items():
        note(f"Feature {name!r}: {hint}.")
    for reason, count in served.not_compared.items():
        note(f"Not compared: {pluralize(count, 'recorded value')} {reason}.")
    if served.different > len(served.differences):
        note(f"There are {served.different} different values; pass --limit to list more.")


def _cells(seen: StoredValue | None) -> tuple[object, object]:
    return (None, None) if seen is None else (bytes(seen.value).decode(), seen.as_of)
