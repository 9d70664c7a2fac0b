"""`headwater graph`: print the dependency graph."""

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, declared_or_remote
from headwater.cli.output import print_json
from headwater.cli.runner import listing

app = command_group("Print the dependency graph as Mermaid.")


@app.command()
def graph(file: FileArgument = None, *, as_json: AsJson = False) -> None:
    """Print the declarations of a file, their events and sources, and dependencies, as Mermaid."""
    listed = listing(declared_or_remote(file))
    if as_json:
        print_json(listed.graph)
    else:
        typer.echo(listed.graph.to_mermaid())
