"""`headwater migrate`: the tables of Postgres, up to date."""

import asyncio

import typer

from headwater.backends.connect import migrate as migrate_backends
from headwater.backends.connect import on_servers
from headwater.cli.options import AsJson, verbs
from headwater.cli.output import print_json
from headwater.settings.loading import load

app = verbs("Bring the tables of Postgres up to date.")


@app.command()
def migrate(*, as_json: AsJson = False) -> None:
    """Bring the tables of Postgres up to date, once however many run it at the same time."""
    settings = load()
    versions = asyncio.run(migrate_backends(settings))
    if as_json:
        print_json({"versions": versions})
    elif versions:
        typer.echo(f"The tables are at version {versions[-1]} now.")
    elif on_servers(settings):
        typer.echo("Nothing to migrate: the tables are up to date.")
    else:
        typer.echo("Nothing to migrate: the embedded store sees to its tables itself.")
