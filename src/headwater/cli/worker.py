"""`headwater worker`: run one more worker process."""

from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, declared_store, features_file
from headwater.cli.output import print_json_line
from headwater.cli.runner import new_store_notice, run_long
from headwater.cli.supervisor_link import SupervisorLink
from headwater.engine.worker.worker import Worker
from headwater.http.server.processes import serve_worker
from headwater.store.feature_store import FeatureStore

app = command_group("Run one more worker process for a features file.")


@app.command()
def worker(
    file: FileArgument = None,
    *,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Port of /metrics, /healthz and /readyz on http.host; 0 for none. Default: "
            "worker.metrics_port.",
        ),
    ] = None,
    supervisor: Annotated[int | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Handle events and scheduled refreshes for a features file, together with other workers.

    On SIGTERM or Ctrl-C it finishes the current work and exits. A second signal ends it at once.
    """
    path = features_file(file)
    store = declared_store(path)
    settings = store.settings
    if supervisor is not None:
        run_long(_work_supervised(store, supervisor))
        return
    port = settings.worker.metrics_port if metrics_port is None else metrics_port
    run_long(_work(store, port, str(path), as_json=as_json))


async def _work_supervised(store: FeatureStore, descriptor: int) -> None:
    """Run a worker that `headwater serve` has started, which reports its metrics."""
    worker, settings = Worker(store, owns_process=True), store.settings
    SupervisorLink(descriptor, settings.worker.drain_timeout).follow(worker.health, worker.stop)
    await serve_worker(store, worker, host=settings.http.host, port=None)


async def _work(store: FeatureStore, port: int, path: str, *, as_json: bool) -> None:
    worker = Worker(store, owns_process=True)
    announce_if_new = new_store_notice(store.settings)

    def ready(url: str | None) -> None:
        announce_if_new()
        if as_json:
            print_json_line({"worker": worker.name} | ({"url": url} if url else {}))
        else:
            metrics = f" Metrics: {url}/metrics." if url else ""
            typer.echo(f"Worker {worker.name} handles events for {path}.{metrics}")
            typer.echo("Press Ctrl-C to stop.")

    host = store.settings.http.host
    await serve_worker(store, worker, host=host, port=port or None, on_ready=ready)
