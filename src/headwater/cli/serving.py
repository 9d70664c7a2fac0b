"""Commands that run until a signal arrives: `serve`, `ui`, `worker` and `mcp`."""

import os
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Annotated

import typer

from headwater.cli.commands import (
    DECLARED_ARGUMENT,
    CommandCall,
    Commands,
    features_file,
    new_store_notice,
    run,
)
from headwater.cli.output import is_interactive, note, print_json_line
from headwater.cli.processes import (
    ChildProcesses,
    SupervisorLink,
    run_long,
    serve_supervised,
    serve_with_processes,
    worker_processes,
)
from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.worker import Worker
from headwater.errors import MissingExtraError
from headwater.http.routing.mounts import AsgiMount
from headwater.http.server.processes import serve as serve_http
from headwater.http.server.processes import serve_mounts, serve_worker, stop_signals
from headwater.settings.schema import on_servers
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import locate

app = Commands(file=DECLARED_ARGUMENT)
Port = Annotated[int | None, typer.Option(min=0, max=65_535)]
Supervisor = Annotated[int | None, typer.Option(hidden=True)]
_MCP_PATH = "/mcp"
_POLL_SECONDS = 0.25


@app.command()
def serve(
    call: CommandCall,
    *,
    host: str | None = None,
    port: Port = None,
    workers: Annotated[int | None, typer.Option(min=0)] = None,
    processes: Annotated[int | None, typer.Option(min=1)] = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    reload: bool = False,
    restarted: Annotated[bool, typer.Option("--restarted", hidden=True)] = False,
    supervisor: Supervisor = None,
) -> None:
    """Serve a features file: HTTP API, workers and scheduler.

    A process that ends is started again, and all of them end with the server. On SIGTERM or Ctrl-C
    they finish the current work and exit. A second signal ends them at once.

    Args:
        host: Address to listen on. Default: http.host.
        port: Port to listen on; 0 takes a free port. Default: http.port.
        workers: Worker processes to start; 0 for none. Default: in production worker.processes, in
            development a worker inside this process.
        processes: API processes to start, which share the port; with more than one, the workers are
            processes too. Default: http.processes.
        tls_cert: File of a certificate, in PEM, to serve HTTPS with (TLS 1.2 or newer); read again
            when it changes. Default: http.tls.cert_file.
        tls_key: File of its key. Default: http.tls.key_file.
        reload: Restart when a Python file changes in the folder of the features file or of its
            package, or below it.
    """
    path = features_file(call.file)
    if reload:
        given = {"--host": host, "--port": port, "--workers": workers, "--processes": processes,
                 "--tls-cert": tls_cert, "--tls-key": tls_key}  # fmt: skip
        # `graph` loads the file and checks its references, and `serve` accepts more than `check`.
        graph, command = ([sys.executable, "-m", "headwater", verb, str(path)]
                          for verb in ("graph", "serve"))  # fmt: skip
        command += [f"{name}={value}" for name, value in given.items() if value is not None]
        command += ["--json"] if call.as_json else []
        raise typer.Exit(serve_with_reload(graph, command, locate(path).root))
    store, http = call.local, call.local.settings.http
    address = (http.host if host is None else host, http.port if port is None else port)
    mounts = [mcp_mount(store)] if store.settings.mcp.enabled else []
    tls = _tls_files(
        http.tls.cert_file if tls_cert is None else tls_cert, tls_key or http.tls.key_file
    )
    if supervisor is not None:
        run_long(serve_supervised(store, address, mounts, supervisor, tls))
        return
    count = http.processes if processes is None else processes
    if workers is None and (count > 1 or store.settings.env == "production"):
        workers = store.settings.worker.processes
    announce_if_new = new_store_notice(store.settings)

    def ready(url: str) -> None:
        announce_if_new()
        _print_welcome(call, url, workers=workers, restarted=restarted)

    if count > 1:
        whole = serve_with_processes(store.settings, path, address, count, workers or 0, ready, tls)
        run_long(whole)
        return
    children = ChildProcesses([worker_processes(path, workers)]) if workers else None
    run_long(
        serve_http(
            store,
            host=address[0],
            port=address[1],
            worker=workers is None,
            processes=children,
            mounts=mounts,
            on_ready=ready,
            tls=tls,
        )
    )


def _tls_files(cert: str, key: str) -> tuple[str, ...]:
    if key and not cert:
        raise typer.BadParameter("a key is given without a certificate; pass --tls-cert, too")
    return (cert, key) if cert else ()


def _print_welcome(call: CommandCall, url: str, *, workers: int | None, restarted: bool) -> None:
    if call.as_json:
        print_json_line({"url": url})
        return
    path, settings = features_file(call.file), call.local.settings
    place = "in Redis and Postgres" if on_servers(settings) else f"in {settings.home}"
    typer.echo(f"Serving {path} at {url} (data {place}).")
    if restarted:
        return
    if is_ui_installed():
        typer.echo(f"Its web UI is at {url}/")
    if workers == 0:
        typer.echo(f"No worker in this process; start one: headwater worker {quote(str(path))}")
    registry, file = runtime_of(call.local).registry, quote(str(path))
    typer.echo(f"\nTry in another terminal:\n  headwater features list --file {file}")
    triggered = [feature for feature in registry.features.values() if feature.triggers]
    for feature in triggered[:1]:
        event_type = quote(feature.triggers[0])
        typer.echo(f"  headwater events publish {event_type} ID KEY=VALUE --file {file}")
        read = feature.name if feature.windows is None else feature.windows.members[0]
        typer.echo(f"  headwater features get {read} ID --file {file}")
    if registry.contexts:
        typer.echo(f"  headwater context declared --file {file}")
    typer.echo(f"  headwater graph {file}\n\nPress Ctrl-C to stop.")


@app.command()
def ui(
    call: CommandCall,
    *,
    port: Port = None,
    browser: bool = True,
) -> None:
    """Serve a features file on this machine, with a worker, and open its web UI in the browser.

    With --url, open the UI of that server and start none.

    Args:
        port: Port to listen on. Default: http.port.
        browser: Open the browser or not; without a terminal it is never opened.
    """
    opens = browser and not call.as_json and is_interactive()
    if call.server is not None:
        show(call.server.url, opens=opens, as_json=call.as_json)
        return
    settings = call.local.settings
    announce_if_new = new_store_notice(settings)

    def ready(url: str) -> None:
        announce_if_new()
        show(url, opens=opens, as_json=call.as_json, has_ui=is_ui_installed())

    chosen = settings.http.port if port is None else port
    run_long(serve_http(call.local, host="127.0.0.1", port=chosen, on_ready=ready))


def show(url: str, *, opens: bool, as_json: bool, has_ui: bool = True) -> None:
    """Print the address of a server, and open it in the browser."""
    if as_json:
        print_json_line({"url": url})
        return
    typer.echo(f"Headwater is at {url}/")
    if not has_ui:
        note(f"The web UI is not part of this installation; the API is. To add it, {BUILD_UI}.")
    if opens and not webbrowser.open(f"{url}/"):
        note("No browser could be opened; open this address yourself.")


@app.command()
def worker(call: CommandCall, *, metrics_port: Port = None, supervisor: Supervisor = None) -> None:
    """Handle events and scheduled refreshes for a features file, together with other workers.

    On SIGTERM or Ctrl-C it finishes the current work and exits. A second signal ends it at once.

    Args:
        metrics_port: Port of /metrics, /healthz and /readyz on http.host; 0 for none. Default:
            worker.metrics_port.
    """
    path, store, settings = features_file(call.file), call.local, call.local.settings
    announce_if_new = new_store_notice(settings)

    async def work() -> None:
        worker = Worker(store, owns_process=True, is_alone=supervisor is None)
        host = settings.http.host
        if supervisor is not None:
            # `headwater serve` has started this process, which reports its metrics to it.
            link = SupervisorLink(supervisor, settings.worker.drain_timeout)
            link.follow(worker.health, worker.stop)
            await serve_worker(store, worker, host=host, port=None)
            return

        def ready(url: str | None) -> None:
            announce_if_new()
            if call.as_json:
                print_json_line({"worker": worker.name} | ({"url": url} if url else {}))
            else:
                metrics = f" Metrics: {url}/metrics." if url else ""
                typer.echo(f"Worker {worker.name} handles events for {path}.{metrics}")
                typer.echo("Press Ctrl-C to stop.")

        port = settings.worker.metrics_port if metrics_port is None else metrics_port
        await serve_worker(store, worker, host=host, port=port or None, on_ready=ready)

    run_long(work())


@app.command()
def mcp(
    call: CommandCall, *, http: bool = False, host: str | None = None, port: Port = None
) -> None:
    """Serve features, contexts and records to models, by the Model Context Protocol.

    Over stdio, the host that starts this process is the local user and may call everything. Over
    HTTP, the scopes of the API key decide.

    Args:
        http: Serve streamable HTTP at /mcp, metrics and probes, instead of stdio.
        host: With --http: address to listen on. Default: http.host.
        port: With --http: port to listen on; 0 takes a free port. Default: http.port.
    """
    transports = _mcp_transports()
    if not http:
        given = {"--host": host is not None, "--port": port is not None, "--json": call.as_json}
        for option, is_given in given.items():
            if is_given:
                raise typer.BadParameter(f"{option} is for HTTP; pass --http, too")
        # The protocol owns standard output; a features file may print.
        with redirect_stdout(sys.stderr):
            store = call.local
        run(store, transports.serve_stdio, create=True)
        return
    settings = call.local.settings.http
    host = settings.host if host is None else host
    port = settings.port if port is None else port

    def ready(url: str) -> None:
        if call.as_json:
            print_json_line({"url": url + _MCP_PATH})
        else:
            note(f"Serving MCP at {url}{_MCP_PATH}. Press Ctrl-C to stop.")

    mounts = [mcp_mount(call.local)]
    tls = _tls_files(settings.tls.cert_file, settings.tls.key_file)
    run_long(serve_mounts(call.local, mounts, host=host, port=port, on_ready=ready, tls=tls))


def mcp_mount(store: FeatureStore) -> AsgiMount:
    """Return the MCP server of a store as a part of an HTTP server."""
    application = _mcp_transports().StreamableHttp(store)
    return AsgiMount(_MCP_PATH, application, application.running)


def _mcp_transports() -> ModuleType:
    try:
        from headwater.mcp import transports  # noqa: PLC0415 - an extra, loaded by this verb alone
    except ModuleNotFoundError as error:
        raise MissingExtraError("the MCP server", "mcp") from error
    return transports


def serve_with_reload(
    load: Sequence[str], serve: Sequence[str], folder: Path, *, pass_fds: Sequence[int] = ()
) -> int:
    """Run a server until a signal arrives, and return its exit code.

    A server that runs is replaced when a Python file of the folder has changed and the command
    ``load`` succeeds.
    """
    command = serve
    received: list[int] = []
    for number in stop_signals():
        signal.signal(number, lambda number, _: received.append(number))
    while True:
        seen = _modified_times(folder)
        # In its own session, so that a signal reaches it only through this process.
        child = subprocess.Popen(command, start_new_session=True, pass_fds=pass_fds)
        has_ended = is_replaceable = False
        while not received and not is_replaceable:
            time.sleep(_POLL_SECONDS)
            if not has_ended and child.poll() is not None:
                has_ended = True
                note(f"The server exited with {child.returncode}; waiting for a file to change.")
            if (changed := _modified_times(folder)) != seen:
                seen, is_replaceable = changed, has_ended or _succeeds(load, received)
                if is_replaceable and _modified_times(folder) != seen:
                    is_replaceable = False  # what was loaded is not what would be served
                elif not is_replaceable and not received:
                    note("The server goes on without this change; waiting for the next one.")
        code = _stop(child, received)
        if received:
            return code
        note("A file changed; restarting.")
        if not has_ended:
            command = [*serve, "--restarted"]


def _succeeds(command: Sequence[str], received: Sequence[int]) -> bool:
    """Return whether a command succeeds before a signal arrives; its errors are shown."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None and not received:
        time.sleep(_POLL_SECONDS)
    child.kill()
    return child.wait() == 0


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
