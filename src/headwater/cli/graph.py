"""`headwater graph`: print the dependency graph."""

import typer

from headwater.cli.context_declared import hint_at_contexts
from headwater.cli.options import AsJson, FileArgument, command_group, declared_store
from headwater.cli.output import print_json
from headwater.declarations.runtime import runtime_of

app = command_group("Print the dependency graph as Mermaid.")


@app.command()
def graph(file: FileArgument = None, *, as_json: AsJson = False) -> None:
    """Print the events, sources and features of a file and their dependencies, as Mermaid."""
    store = declared_store(file)
    drawn = store.graph()
    if as_json:
        print_json(drawn)
    else:
        typer.echo(drawn.to_mermaid())
        hint_at_contexts(runtime_of(store).registry)
