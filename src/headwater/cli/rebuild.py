"""`headwater rebuild`: online values from history."""

import typer

from headwater.cli.options import AsJson, FileArgument, declared_store, verbs
from headwater.cli.output import counted, print_json, progress_bar
from headwater.cli.running import run

app = verbs("Restore online values from history.")


@app.command()
def rebuild(file: FileArgument = None, *, as_json: AsJson = False) -> None:
    """Restore the online values of every declared feature from history.

    A newer value online stays, so it may run beside workers; it can be run again at any time.
    """
    with progress_bar("Rebuilding") as tell:
        done = run(declared_store(file), lambda store: store.rebuild(progress=tell))
    if as_json:
        print_json(done)
    else:
        values = counted(done.values, "value")
        entities = counted(done.entity_ids, "entity", "entities")
        typer.echo(f"The online store has the last {values} of {entities} in history, or newer.")
