"""The first word of every command, its one-line help, and the module that is loaded for it."""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

# Each is a module of this package. Only the one that is used is imported, so that `--help` does
# not wait for a web framework.
VERBS = {
    "demo": "Show events changing features and a context being proved.",
    "serve": "Serve a features file: API, worker and scheduler in one process.",
    "worker": "Add a worker process to the store of a features file.",
    "features": "Read and list features.",
    "events": "Publish events.",
    "context": "Assemble, show, verify, export and compare contexts.",
    "dlq": "Look at dead letters, run them again or discard them.",
    "lag": "Show how many events wait, and for how long.",
    "rebuild": "Restore online values from history.",
    "audit": "Compare online values with history.",
    "migrate": "Bring the tables of Postgres up to date.",
    "graph": "Print what depends on what, as Mermaid.",
    "config": "Show the settings and where each comes from.",
}


class LazyCommands(TyperGroup):
    """The group that knows its verbs by name and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, get_command(import_module(f"headwater.cli.{name}").app), rest


app = typer.Typer(
    cls=LazyCommands,
    help="Events keep features fresh; contexts are made of them, and can be proved.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if asked:
        typer.echo(f"headwater {version('headwater')}")
        raise typer.Exit


@app.callback()
def headwater(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Holds the options that come before a verb."""


def _listed() -> None:
    """Stands for a verb in the list until its module is loaded."""


for _name, _help in VERBS.items():
    app.command(_name, help=_help)(_listed)
