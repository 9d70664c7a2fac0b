"""`headwater ui`: serve a features file and open its web UI."""

import webbrowser
from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, declared_store
from headwater.cli.output import is_interactive, note, print_json_line
from headwater.cli.remote import server_of
from headwater.cli.runner import new_store_notice, run_long
from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.http.server.processes import serve as serve_http

app = command_group("Serve a features file and open its web UI in the browser.")


@app.command()
def ui(
    file: FileArgument = None,
    *,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port to listen on. Default: http.port.")
    ] = None,
    browser: Annotated[
        bool, typer.Option(help="Open the browser or not; without a terminal it is never opened.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Serve a features file on this machine, with a worker, and open its web UI in the browser.

    With --url, open the UI of that server and start none.
    """
    opens = browser and not as_json and is_interactive()
    server = server_of(file)
    if server is not None:
        show(server.url, opens=opens, as_json=as_json)
        return
    store = declared_store(file)
    announce_if_new = new_store_notice(store.settings)

    def ready(url: str) -> None:
        announce_if_new()
        show(url, opens=opens, as_json=as_json, has_ui=is_ui_installed())

    chosen = store.settings.http.port if port is None else port
    run_long(serve_http(store, host="127.0.0.1", port=chosen, on_ready=ready))


def show(url: str, *, opens: bool, as_json: bool, has_ui: bool = True) -> None:
    """Print the address of a server, and open it in the browser."""
    if as_json:
        print_json_line({"url": url})
        return
    typer.echo(f"Headwater is at {url}/")
    if not has_ui:
        note(f"The web UI is not part of this installation; the API is. To add it, {BUILD_UI}.")
    if opens and not webbrowser.open(f"{url}/"):
        typer.echo("No browser could be opened; open this address yourself.", err=True)
