"""`headwater config`: the settings and where each was written."""

import typer

from headwater.cli.options import AsJson, verbs
from headwater.cli.output import print_json, print_table
from headwater.settings.loading import describe, load_with_origins

app = verbs("Show the settings and where each comes from.")


@app.callback()
def config() -> None:
    """Show the settings and where each comes from."""


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Show every setting: its value, whether a file or a variable set it, and what it is for."""
    settings = list(describe(load_with_origins()))
    if as_json:
        print_json([setting._asdict() for setting in settings])
        return
    rows = [(s.path, s.value, s.origin, s.variable, s.description) for s in settings]
    print_table(("setting", "value", "from", "variable", "meaning"), rows)
    if not any(setting.origin != "default" for setting in settings):
        typer.echo("\nAll are defaults; set a variable, or write headwater.toml here.", err=True)
