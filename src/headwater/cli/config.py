"""`headwater config`: show the settings."""

import typer

from headwater.cli.options import AsJson, command_group
from headwater.cli.output import print_json, print_table
from headwater.settings.loading import describe, load_with_origins

app = command_group("Show the settings and where each value comes from.")


@app.callback()
def config() -> None:
    """Show the settings and where each value comes from."""


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Show every setting with its value, origin and meaning."""
    settings = list(describe(load_with_origins()))
    if as_json:
        print_json([setting._asdict() for setting in settings])
        return
    rows = [(s.path, s.value, s.origin, s.variable, s.description) for s in settings]
    print_table(("setting", "value", "from", "variable", "meaning"), rows)
    if not any(setting.origin != "default" for setting in settings):
        typer.echo(
            "\nAll values are defaults. To change one, set its variable or write headwater.toml "
            "in this folder.",
            err=True,
        )
