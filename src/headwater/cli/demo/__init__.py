"""`headwater demo`: a tour of a small shop on a real server."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headwater.cli.demo.shop_folder import Filling, write_shop
from headwater.cli.demo.tour import DemoServer, Tour, without_ui
from headwater.cli.demo.trickle import trickle
from headwater.cli.options import AsJson, command_group
from headwater.cli.output import print_json
from headwater.http.server.processes import stop_signals

_DONE = """
The server has stopped and its folder is removed. Next:

{activate}  headwater demo --keep    run the tour again, then serve a shop with a week of data
  docs/tutorial.md         build the shop step by step
"""
_FILLING = """
The tour is done. Writing {days} days of made-up data for a larger shop …"""
_KEPT = """
A shop with {days} days of made-up data runs at {url}, and customers keep visiting it.
Its web UI is at {url}/{without_ui}
In another terminal, try:

{activate}  cd {folder}
  headwater features list
  headwater events publish purchase ada amount=12.5
  headwater features get total_spend ada
  headwater index search help "My drill is broken."
  headwater dlq list
  headwater context list

Press Ctrl-C to stop. The folder stays."""

app = command_group("Show a short tour on a real server.")


@app.command()
def demo(
    *,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Then serve a larger shop, with made-up data, until Ctrl-C, and keep its folder.",
        ),
    ] = False,
    days: Annotated[
        int, typer.Option(min=1, max=28, help="With --keep: how many days of made-up data.")
    ] = 7,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free port.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show a short tour: events, features, a crash, search by meaning, and a verified context.

    The tour runs a real server in a temporary folder. It needs nothing but this package, exits
    when it is done, and removes the folder.
    """
    # Every stop signal cleans up the server and the folder as Ctrl-C does.
    for number in stop_signals():
        signal.signal(number, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True, quiet=as_json)
    with ExitStack() as stack:
        # The data takes longer to write than the tour takes to read, so it begins first.
        shop = _start_shop(stack, days) if keep else None
        with _example_folder() as folder, DemoServer(folder, port) as server:
            tour = Tour(server, console)
            tour.run()
        if shop is None:
            if as_json:
                print_json({"url": server.url, "steps": tour.steps})
            console.print(_DONE.format(activate=_activation()))
            return
        console.print(_FILLING.format(days=days))
        folder, filling = shop
        filling.finish()
        server = stack.enter_context(DemoServer(folder, port))
        server.start()
        try:
            if as_json:
                print_json({"url": server.url, "steps": tour.steps})
            console.print(
                _KEPT.format(
                    url=server.url,
                    without_ui=without_ui(),
                    folder=folder,
                    days=days,
                    activate=_activation(),
                )
            )
            trickle(server)
        except KeyboardInterrupt:
            console.print("\nStopping.")


def _start_shop(stack: ExitStack, days: int) -> tuple[Path, Filling]:
    """Write the shop to a new folder, which is kept, and begin to fill its store."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-shop-"))
    write_shop(folder)
    return folder, stack.enter_context(Filling(folder, days))


def _activation() -> str:
    """Return the line that puts `headwater` on the PATH, if it is not there."""
    script = Path(sys.prefix, "bin", "activate")
    return f"  source {script}\n" if script.exists() and not shutil.which("headwater") else ""


@contextmanager
def _example_folder() -> Iterator[Path]:
    """Yield a new folder with a copy of the shipped example, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        for name in ("features.py", "orders.csv"):
            with as_file(files("headwater.cli.demo") / name) as shipped:
                shutil.copy(shipped, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
