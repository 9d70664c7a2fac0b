"""`headwater worker`: one more worker process."""

import asyncio
from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileArgument, features_file, verbs
from headwater.cli.output import print_json_line
from headwater.cli.runner import run_long, stop_on_signal, telling_if_made
from headwater.core.deadlines import ending
from headwater.core.logging import log
from headwater.engine.worker import Worker
from headwater.http.server import say_if_busy, serve_worker
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store

_FORCE_SECONDS = 5.0

app = verbs("Add a worker process to the store of a features file.")


@app.command()
def worker(
    file: FileArgument = None,
    *,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve /metrics, /healthz and /readyz here; 0 for none; by default the setting's.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Handle events and scheduled refreshes for a features file, beside others who do.

    SIGTERM and Ctrl-C let it finish what it has begun; a second one ends it at once.
    """
    path = features_file(file)
    store = load_store(path)
    settings = store.settings
    port = settings.worker.metrics_port if metrics_port is None else metrics_port
    run_long(_work(store, port, str(path), as_json=as_json))


async def _work(store: FeatureStore, port: int, path: str, *, as_json: bool) -> None:
    worker = Worker(store)
    tell_if_made = telling_if_made(store.settings)

    def ready(url: str | None = None) -> None:
        tell_if_made()
        if as_json:
            print_json_line({"worker": worker.name} | ({"url": url} if url else {}))
        else:
            where = f" (metrics at {url}/metrics)" if url else ""
            name = worker.name
            typer.echo(f"Worker {name} handles the events of {path}{where}; Ctrl-C stops it.")

    if port:
        await serve_worker(store, worker, host=store.settings.http.host, port=port, on_ready=ready)
        return
    seconds = store.settings.worker.drain_timeout
    async with store:
        working = asyncio.create_task(worker.run())
        with ending(seconds + _FORCE_SECONDS) as end:

            def stop() -> None:
                end()
                worker.stop()
                say_if_busy([working], seconds)
                asyncio.get_running_loop().call_later(seconds, working.cancel)

            stop_on_signal(stop)
            ready()
            await asyncio.wait([working])
        if working.cancelled():
            log.warning("worker did not finish in time; its events will be read again")
        else:
            working.result()
