"""`headwater audit-log`: who did which administrative action."""

from typing import Annotated

import typer

from headwater.cli.options import (
    AsJson,
    Before,
    Since,
    StoreOption,
    bare_or_remote,
    command_group,
    parse_span,
)
from headwater.cli.output import note, print_json, print_table, second_text
from headwater.cli.runner import run

app = command_group("List administrative actions: who did what, and when.")


@app.command("audit-log")
def audit_log(
    *,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as dead_letters.redrive.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Only of this actor: the name of a key, or user@host.")
    ] = None,
    since: Since = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after an earlier page; its `next_cursor`.")
    ] = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List administrative actions, newest first: who did what, when, and how it ended."""
    store = bare_or_remote(file)
    start, end = parse_span(since, before, store.clock.now())
    page = run(
        store,
        lambda store: store.audit_log(
            action=action, actor=actor, since=start, before=end, limit=limit, cursor=cursor
        ),
    )
    if as_json:
        print_json(page)
        return
    if not page.entries:
        typer.echo("No administrative actions.")
        return
    rows = [
        (
            second_text(entry.at),
            entry.actor,
            entry.action,
            entry.target,
            entry.outcome if entry.error is None else f"{entry.outcome}: {entry.error}",
            entry.parameters or None,
        )
        for entry in page.entries
    ]
    print_table(("at", "actor", "action", "target", "outcome", "parameters"), rows)
    if page.next_cursor is not None:
        note(f"There are more; pass --cursor {page.next_cursor} to list them.")
