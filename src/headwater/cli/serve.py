"""`headwater serve`: the HTTP API, with workers in this process or in child processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from headwater.cli.child_processes import (
    ChildProcesses,
    serve_supervised,
    serve_with_processes,
    worker_processes,
)
from headwater.cli.mcp import mcp_mount
from headwater.cli.options import AsJson, FileArgument, command_group, declared_store, features_file
from headwater.cli.output import note, print_json_line
from headwater.cli.runner import new_store_notice, run_long
from headwater.core.ui_files import is_ui_installed
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.http.server.processes import serve as serve_http
from headwater.http.server.processes import stop_signals
from headwater.settings.environments import on_servers
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import locate

app = command_group("Serve a features file.")
Host = Annotated[str | None, typer.Option(help="Address to listen on. Default: http.host.")]
Port = Annotated[
    int | None,
    typer.Option(
        min=0, max=65_535, help="Port to listen on; 0 takes a free port. Default: http.port."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Worker processes to start; 0 for none. Default: in production worker.processes, "
        "in development a worker inside this process.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="API processes to start, which share the port; with more than one, the workers "
        "are processes too. Default: http.processes.",
    ),
]
Reload = Annotated[
    bool,
    typer.Option(
        "--reload",
        help="Restart when a Python file changes in the folder of the features file or of its "
        "package, or below it.",
    ),
]
_POLL_SECONDS = 0.25


@app.command()
def serve(
    file: FileArgument = None,
    *,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    processes: Processes = None,
    reload: Reload = False,
    restarted: Annotated[bool, typer.Option("--restarted", hidden=True)] = False,
    supervisor: Annotated[int | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a features file: HTTP API, workers and scheduler.

    A process that ends is started again, and all of them end with the server. On SIGTERM or Ctrl-C
    they finish the current work and exit. A second signal ends them at once.
    """
    path = features_file(file)
    if reload:
        given = {"--host": host, "--port": port, "--workers": workers, "--processes": processes}
        options = [f"{name}={value}" for name, value in given.items() if value is not None]
        raise typer.Exit(serve_with_reload(path, [*options, *(["--json"] if as_json else [])]))
    store = declared_store(path)
    http = store.settings.http
    address = (http.host if host is None else host, http.port if port is None else port)
    mounts = [mcp_mount(store)] if store.settings.mcp.enabled else []
    if supervisor is not None:
        run_long(serve_supervised(store, address, mounts, supervisor))
        return
    count = http.processes if processes is None else processes
    if workers is None and (count > 1 or store.settings.env == "production"):
        workers = store.settings.worker.processes
    announce_if_new = new_store_notice(store.settings)

    def ready(url: str) -> None:
        announce_if_new()
        if as_json:
            print_json_line({"url": url})
        else:
            _print_welcome(store, path, url, workers=workers, restarted=restarted)

    if count > 1:
        run_long(serve_with_processes(store.settings, path, address, count, workers or 0, ready))
        return
    run_long(
        serve_http(
            store,
            host=address[0],
            port=address[1],
            worker=workers is None,
            processes=ChildProcesses([worker_processes(path, workers)]) if workers else None,
            mounts=mounts,
            on_ready=ready,
        )
    )


def _print_welcome(
    store: FeatureStore, path: Path, url: str, *, workers: int | None, restarted: bool
) -> None:
    settings = store.settings
    place = "in Redis and Postgres" if on_servers(settings) else f"in {settings.home}"
    typer.echo(f"Serving {path} at {url} (data {place}).")
    if restarted:
        return
    if is_ui_installed():
        typer.echo(f"Its web UI is at {url}/")
    if workers == 0:
        typer.echo(f"No worker in this process; start one: headwater worker {quote(str(path))}")
    typer.echo("\nTry in another terminal:")
    for command in _commands_to_try(runtime_of(store).registry, quote(str(path))):
        typer.echo(f"  {command}")
    typer.echo("\nPress Ctrl-C to stop.")


def _commands_to_try(registry: Registry, file: str) -> Iterator[str]:
    yield f"headwater features list --file {file}"
    for feature in [triggered for triggered in registry.features.values() if triggered.triggers][
        :1
    ]:
        yield f"headwater events publish {quote(feature.triggers[0])} ID KEY=VALUE --file {file}"
        yield f"headwater features get {feature.name} ID --file {file}"
    if registry.contexts:
        yield f"headwater context declared --file {file}"
    yield f"headwater graph {file}"


def serve_with_reload(file: Path, options: Sequence[str]) -> int:
    """Serve a features file until a signal arrives, and return the exit code."""
    # The child gets its own session, so that a signal reaches it only through this process.
    command = serve = [sys.executable, "-m", "headwater", "serve", str(file), *options]
    received: list[int] = []
    for number in stop_signals():
        signal.signal(number, lambda number, _: received.append(number))
    folder = locate(file).root
    while True:
        seen = _modified_times(folder)
        child = subprocess.Popen(command, start_new_session=True)
        has_ended = False
        while not received and _modified_times(folder) == seen:
            time.sleep(_POLL_SECONDS)
            if not has_ended and child.poll() is not None:
                has_ended = True
                note(f"The server exited with {child.returncode}; waiting for a file to change.")
        code = _stop(child, received)
        if received:
            return code
        note("A file changed; restarting.")
        if not has_ended:
            command = [*serve, "--restarted"]


def _stop(child: subprocess.Popen[bytes], received: Sequence[int]) -> int:
    """Let the child finish its work; kill it if a second signal arrives."""
    child.terminate()
    while True:
        if len(received) > 1:
            child.kill()
        try:
            return child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _modified_times(folder: Path) -> dict[str, int]:
    """Return when each Python file in a folder was written, without virtual environments."""
    times: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__")) and not Path(root, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            path = Path(root, name)
            if path.suffix == ".py" and path.exists():
                times[str(path)] = path.stat().st_mtime_ns
    return times
