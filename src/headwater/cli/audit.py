"""`headwater audit`: whether online values and history agree."""

from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, declared_store, verbs
from headwater.cli.output import counted, note, print_json, print_table, progress_bar
from headwater.cli.runner import run
from headwater.features.reconcile import AuditReport, Seen

app = verbs("Compare online values with history.")


@app.command()
def audit(
    file: FileArgument = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="Stop after so many differences.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Compare the online values of every declared feature with the last ones in history.

    Exits with 1 if they differ. It may run beside workers: a difference counts only if it is
    still there when both sides are read again.
    """
    with progress_bar("Comparing") as tell:
        done = run(
            declared_store(file), lambda store: store.admin.audit(limit=limit, progress=tell)
        )
    if as_json:
        print_json(done)
    else:
        _print(done)
    raise typer.Exit(1 if done.differences else 0)


def _print(done: AuditReport) -> None:
    if done.differences:
        rows = [
            (d.entity, d.entity_id, d.feature, *_sides(d.online), *_sides(d.history))
            for d in done.differences
        ]
        columns = ("entity", "entity id", "feature", "online", "as of", "history", "as of")
        print_table(columns, rows)
    else:
        entities = counted(done.entity_ids, "entity", "entities")
        typer.echo(f"{counted(done.values, 'value')} of {entities}: all as in history.")
    if done.not_compared:
        names = ", ".join(done.not_compared)
        note(f"Not compared, because what is kept of them is a cache: {names}.")
    if not done.complete:
        shown = counted(len(done.differences), "difference")
        note(f"There are more than {shown}; --limit shows more.")
    if done.differences:
        note("`headwater rebuild` brings what history has and online has not.")


def _sides(seen: Seen | None) -> tuple[object, object]:
    return (None, None) if seen is None else (bytes(seen.value).decode(), seen.as_of)
