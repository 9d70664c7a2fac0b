"""`--url` and `--key` of every command: the server that it calls in place of a local store."""

from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headwater.settings.loading import load

if TYPE_CHECKING:
    # Loading httpx takes longer than most commands.
    from headwater.client import AsyncClient

LOCAL_ONLY = {
    "demo": "it makes a store of its own",
    "init": "it writes files here",
    "check": "it reads a features file here",
    "serve": "it is the server",
    "worker": "it runs the functions of a features file here",
    "mcp": "it runs the functions of a features file here, for the program that starts it",
    "keys": "keys and their file stay on the machine that makes them",
    "migrate": "it changes the tables of the Postgres server in the settings",
    "metrics": "its output does not depend on a store",
    "config": "it shows the settings of this machine",
}
"""The commands that never call a server, and why."""


_running: ContextVar[typer.Context | None] = ContextVar("headwater_command", default=None)
"""The command that is running; its ``meta`` has the two options by name."""


def _remember(
    context: typer.Context, parameter: typer.CallbackParam, value: str | None
) -> str | None:
    reason = LOCAL_ONLY.get(_name_of(context))
    if value is not None and reason is not None:
        raise typer.BadParameter(f"`{context.command_path}` cannot call a server: {reason}")
    context.meta[f"headwater.{parameter.name}"] = value
    _running.set(context)
    return value


def _name_of(context: typer.Context) -> str:
    """Return the first word after `headwater`."""
    return " ".join(context.command_path.split()[1:2])


@cache
def _options(*, hidden: bool) -> tuple[Any, ...]:
    """Return the two options as parameters, which all commands share."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def template(
        *,
        url: Annotated[
            str | None,
            typer.Option(
                "--url",
                metavar="URL",
                help="Call this server, not a local store. Default: HEADWATER_CLIENT_URL.",
                hidden=hidden,
                expose_value=False,
                callback=_remember,
            ),
        ] = None,
        key: Annotated[
            str | None,
            typer.Option(
                "--key",
                metavar="KEY",
                help="API key for the server. Default: HEADWATER_CLIENT_KEY.",
                hidden=hidden,
                expose_value=False,
                callback=_remember,
            ),
        ] = None,
    ) -> None: ...

    return tuple(
        parameter for parameter in get_command(app).params if parameter.name in ("url", "key")
    )


def add_server_options(command: Any, name: str) -> Any:
    """Add --url and --key to a command, or to each command of a group; return it."""
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            add_server_options(inner, name)
    else:
        command.params += _options(hidden=name in LOCAL_ONLY)
    return command


def server_of(file: Path | None) -> "AsyncClient | None":
    """Return the server that the command line or the settings name, or None for a local store.

    A features file on the command line means a local store, also if the settings name a server.
    """
    context = _running.get()
    given = {} if context is None else context.meta
    url, key = given.get("headwater.url"), given.get("headwater.key")
    if url and file:
        raise typer.BadParameter(
            "--url calls a server, which has its own features file; pass --url or a file, not both"
        )
    settings = load()
    if file or not (url or settings.client.url):
        if key:
            raise typer.BadParameter("--key is for a server; pass --url, too")
        return None
    from headwater.client import AsyncClient  # noqa: PLC0415 - only commands with a server need it

    return AsyncClient(url, key=key, settings=settings)
