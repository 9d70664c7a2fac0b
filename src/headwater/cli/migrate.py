"""`headwater migrate`: create or update the Postgres tables."""

import asyncio

import typer

from headwater.backends.connect import migrate as migrate_backends
from headwater.cli.options import AsJson, command_group
from headwater.cli.output import print_json
from headwater.settings.environments import on_servers
from headwater.settings.loading import load

app = command_group("Create or update the Postgres tables.")


@app.command()
def migrate(*, as_json: AsJson = False) -> None:
    """Create or update the Postgres tables. Several processes may run this at the same time."""
    settings = load()
    versions = asyncio.run(migrate_backends(settings))
    if as_json:
        print_json({"versions": versions})
    elif versions:
        typer.echo(f"Migrated the tables to version {versions[-1]}.")
    elif on_servers(settings):
        typer.echo("Nothing to migrate: the tables are up to date.")
    else:
        typer.echo("Nothing to migrate: the embedded store creates its own tables.")
