"""The command line: verbs that translate, call the store and translate back."""

import sys

import typer

from headwater.cli.app import app
from headwater.errors import HeadwaterError


def main() -> None:
    """Runs the verb that the command line names; an error of ours is one line, not a traceback."""
    try:
        app(prog_name="headwater")
    except HeadwaterError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
