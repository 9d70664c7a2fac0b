"""`headwater rebuild`: restore online values from history."""

from typing import Annotated

import typer

from headwater.cli.options import AnyStore, AsJson, FileArgument, command_group, declared_or_remote
from headwater.cli.output import is_interactive, pluralize, print_json, progress_bar
from headwater.cli.runner import run
from headwater.errors import StoreMismatchError
from headwater.model.admin import RebuildReport

app = command_group("Restore online values from history.")


@app.command()
def rebuild(
    file: FileArgument = None,
    *,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Take over the history in Postgres if it belongs to another store. The other "
            "store keeps its online values but can no longer write history.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the online value of every declared feature from history.

    Newer online values stay. It is safe to run this while workers are running, and to repeat it.
    """
    store = declared_or_remote(file)
    try:
        report = _rebuild(store, adopt=adopt)
    except StoreMismatchError as error:
        if as_json or not is_interactive():
            raise
        typer.confirm(f"{error}.\nAdopt it now?", abort=True)
        report = _rebuild(store, adopt=True)
    if as_json:
        print_json(report)
    else:
        values = pluralize(report.values, "value")
        entities = pluralize(report.entity_ids, "entity", "entities")
        typer.echo(f"Rebuilt {values} of {entities} from history; newer online values stayed.")


def _rebuild(store: AnyStore, *, adopt: bool) -> RebuildReport:
    with progress_bar("Rebuilding") as progress:
        return run(store, lambda store: store.admin.rebuild(adopt=adopt, progress=progress))
