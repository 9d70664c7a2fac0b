"""`headwater rebuild`: online values from history."""

from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, declared_store, verbs
from headwater.cli.output import counted, on_terminal, print_json, progress_bar
from headwater.cli.runner import run
from headwater.errors import StoreMismatchError
from headwater.features.reconcile import RebuildReport
from headwater.store.feature_store import FeatureStore

app = verbs("Restore online values from history.")


@app.command()
def rebuild(
    file: FileArgument = None,
    *,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Make the history in Postgres that of this store, if it is another's by now: the "
            "other keeps its values, and has no history from then on.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the online values of every declared feature from history.

    A newer value online stays, so it may run beside workers; it can be run again at any time.
    """
    store = declared_store(file)
    try:
        done = _rebuilt(store, adopt=adopt)
    except StoreMismatchError as error:
        if as_json or not on_terminal():
            raise
        typer.confirm(f"{error}.\nAdopt it now?", abort=True)
        done = _rebuilt(store, adopt=True)
    if as_json:
        print_json(done)
    else:
        values = counted(done.values, "value")
        entities = counted(done.entity_ids, "entity", "entities")
        typer.echo(f"The online store has the last {values} of {entities} in history, or newer.")


def _rebuilt(store: FeatureStore, *, adopt: bool) -> RebuildReport:
    with progress_bar("Rebuilding") as tell:
        return run(store, lambda store: store.admin.rebuild(adopt=adopt, progress=tell))
