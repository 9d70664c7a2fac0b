"""`headwater mcp`: the MCP server, over stdio or streamable HTTP."""

import sys
from contextlib import redirect_stdout
from types import ModuleType
from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, declared_store
from headwater.cli.output import note, print_json_line
from headwater.cli.runner import run, run_long
from headwater.errors import MissingExtraError
from headwater.http.routing.mounts import AsgiMount
from headwater.http.server.processes import serve_mounts
from headwater.store.feature_store import FeatureStore

PATH = "/mcp"

app = command_group("Serve a features file to models.")


@app.command()
def mcp(
    file: FileArgument = None,
    *,
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Serve streamable HTTP at /mcp, metrics and probes, instead of stdio."
        ),
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="With --http: address to listen on. Default: http.host.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="With --http: port to listen on; 0 takes a free port. Default: http.port.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve features, contexts and records to models, by the Model Context Protocol.

    Over stdio, the host that starts this process is the local user and may call everything. Over
    HTTP, the scopes of the API key decide.
    """
    transports = _transports()
    if not http:
        _check_stdio(host, port, as_json=as_json)
        # The protocol owns standard output; a features file may print.
        with redirect_stdout(sys.stderr):
            store = declared_store(file)
        run(store, transports.serve_stdio, create=True)
        return
    store = declared_store(file)
    host = store.settings.http.host if host is None else host
    port = store.settings.http.port if port is None else port

    def ready(url: str) -> None:
        if as_json:
            print_json_line({"url": url + PATH})
        else:
            note(f"Serving MCP at {url}{PATH}. Press Ctrl-C to stop.")

    run_long(serve_mounts(store, [mcp_mount(store)], host=host, port=port, on_ready=ready))


def mcp_mount(store: FeatureStore) -> AsgiMount:
    """Return the MCP server of a store as a part of an HTTP server."""
    application = _transports().StreamableHttp(store)
    return AsgiMount(PATH, application, application.running)


def _check_stdio(host: str | None, port: int | None, *, as_json: bool) -> None:
    for option, is_given in (
        ("--host", host is not None),
        ("--port", port is not None),
        ("--json", as_json),
    ):
        if is_given:
            raise typer.BadParameter(f"{option} is for HTTP; pass --http, too")


def _transports() -> ModuleType:
    try:
        from headwater.mcp import transports  # noqa: PLC0415 - an extra, loaded by this verb alone
    except ModuleNotFoundError as error:
        raise MissingExtraError("the MCP server", "mcp") from error
    return transports
