"""`headwater serve`: API, worker and scheduler in one process."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from headwater.backends.connect import on_servers
from headwater.cli.options import AsJson, FileArgument, features_file, verbs
from headwater.cli.output import print_json_line
from headwater.cli.reload import keep_serving
from headwater.cli.runner import run_long, telling_if_made
from headwater.cli.suggestions import suggestions
from headwater.http.server import serve as serve_http
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store

app = verbs("Serve a features file.")


@app.command()
def serve(
    file: FileArgument = None,
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; by default the setting's.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port; 0 takes a free one; by default the setting's."),
    ] = None,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Whether to handle events here as well.")
    ] = True,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a Python file beside it changes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a features file: API, worker and scheduler in one process.

    SIGTERM and Ctrl-C let it finish what it has begun; a second one ends it at once.
    """
    path = features_file(file)
    if reload:
        options = [] if worker else ["--no-worker"]
        options += ["--json"] if as_json else []
        options += ["--host", host] if host is not None else []
        options += ["--port", str(port)] if port is not None else []
        raise typer.Exit(keep_serving(path, options))
    store = load_store(path)
    host = store.settings.http.host if host is None else host
    port = store.settings.http.port if port is None else port

    tell_if_made = telling_if_made(store.settings)

    def ready(url: str) -> None:
        tell_if_made()
        if as_json:
            print_json_line({"url": url})
        else:
            _greet(store, path, url, worker=worker)

    run_long(serve_http(store, host=host, port=port, worker=worker, on_ready=ready))


def _greet(store: FeatureStore, path: Path, url: str, *, worker: bool) -> None:
    settings = store.settings
    where = "on Redis and Postgres" if on_servers(settings) else f"home {settings.home}"
    typer.echo(f"Headwater serves the features of {path} at {url} ({where}).")
    if not worker:
        typer.echo(f"Nothing handles events here; start `headwater worker {quote(str(path))}`.")
    typer.echo("\nTry:")
    for line in suggestions(store, path, url):
        typer.echo(f"  {line}")
    typer.echo("\nCtrl-C stops it.")
