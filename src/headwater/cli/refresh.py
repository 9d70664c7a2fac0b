"""`headwater refresh`: run a scheduled feature now."""

from typing import Annotated

import typer

from headwater.cli.options import FileOption, command_group, declared_or_remote, named_in
from headwater.cli.output import note
from headwater.cli.runner import run

app = command_group("Run a scheduled feature now.")


@app.command()
def refresh(
    name: Annotated[str, typer.Argument(metavar="FEATURE", help="Name of the feature.")],
    *,
    file: FileOption = None,
) -> None:
    """Queue a run of a scheduled feature; the next free worker runs it."""
    store = declared_or_remote(file)
    with named_in(file):
        run(store, lambda store: store.admin.refresh(name))
    note(f"Queued a run of {name} for the next free worker; `headwater lag` shows what waits.")
