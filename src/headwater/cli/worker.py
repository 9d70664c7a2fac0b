"""`headwater worker`: one more worker process."""

import asyncio

import typer

from headwater.cli.options import AsJson, FileArgument, features_file, verbs
from headwater.cli.output import print_json_line
from headwater.cli.running import run_long, stop_on_signal
from headwater.deadline import ending
from headwater.loader import load_store
from headwater.logs import log
from headwater.store import FeatureStore
from headwater.worker import Worker

_FORCE_SECONDS = 5.0

app = verbs("Add a worker process to the store of a features file.")


@app.command()
def worker(file: FileArgument = None, *, as_json: AsJson = False) -> None:
    """Handle events and scheduled refreshes for a features file, beside others who do.

    SIGTERM and Ctrl-C let it finish what it has begun; a second one ends it at once.
    """
    path = features_file(file)
    run_long(_work(load_store(path), str(path), as_json=as_json))


async def _work(store: FeatureStore, path: str, *, as_json: bool) -> None:
    seconds = store.settings.worker.drain_timeout
    async with store:
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        with ending(seconds + _FORCE_SECONDS) as end:

            def stop() -> None:
                end()
                worker.stop()
                asyncio.get_running_loop().call_later(seconds, working.cancel)

            stop_on_signal(stop)
            if as_json:
                print_json_line({"worker": worker.name})
            else:
                typer.echo(f"Worker {worker.name} handles the events of {path}; Ctrl-C stops it.")
            await asyncio.wait([working])
        if working.cancelled():
            log.warning("worker did not finish in time; its events will be read again")
        else:
            working.result()
