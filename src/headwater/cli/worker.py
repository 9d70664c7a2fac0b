"""`headwater worker`: run one more worker process."""

import asyncio
from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, features_file
from headwater.cli.output import print_json_line
from headwater.cli.runner import new_store_notice, run_long, stop_on_signal
from headwater.core.deadlines import force_exit_after
from headwater.core.logging import log
from headwater.engine.worker import Worker
from headwater.http.server import log_if_busy, serve_worker
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store

_FORCE_SECONDS = 5.0

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
            help="Port of /metrics, /healthz and /readyz; 0 for none. Default: the setting.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Handle events and scheduled refreshes for a features file, together with other workers.

    On SIGTERM or Ctrl-C it finishes the current work and exits. A second signal ends it at once.
    """
    path = features_file(file)
    store = load_store(path)
    settings = store.settings
    port = settings.worker.metrics_port if metrics_port is None else metrics_port
    log.configure(settings.log.level, settings.log.format)
    run_long(_work(store, port, str(path), as_json=as_json))


async def _work(store: FeatureStore, port: int, path: str, *, as_json: bool) -> None:
    worker = Worker(store)
    note_if_new = new_store_notice(store.settings)

    def ready(url: str | None = None) -> None:
        note_if_new()
        if as_json:
            print_json_line({"worker": worker.name} | ({"url": url} if url else {}))
        else:
            metrics = f" Metrics: {url}/metrics." if url else ""
            typer.echo(f"Worker {worker.name} handles events for {path}.{metrics}")
            typer.echo("Press Ctrl-C to stop.")

    if port:
        await serve_worker(store, worker, host=store.settings.http.host, port=port, on_ready=ready)
        return
    seconds = store.settings.worker.drain_timeout
    async with store:
        working = asyncio.create_task(worker.run())
        with force_exit_after(seconds + _FORCE_SECONDS) as end:

            def stop() -> None:
                end()
                worker.stop()
                log_if_busy([working], seconds)
                asyncio.get_running_loop().call_later(seconds, working.cancel)

            stop_on_signal(stop)
            ready()
            await asyncio.wait([working])
        if working.cancelled():
            log.warning("worker did not finish in time; its events will be read again")
        else:
            working.result()
