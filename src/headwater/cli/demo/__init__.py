"""`headwater demo`: a tour of a small shop on a real server."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headwater.cli.demo.tour import DemoServer, Tour
from headwater.cli.options import AsJson, command_group
from headwater.cli.output import print_json
from headwater.http.server import stop_signals

_DONE = """
The server has stopped and its folder is removed. Next:

{activate}  headwater demo --keep    run the tour again and keep the server, to try it yourself
  docs/tutorial.md         build the shop step by step
"""
_KEPT = """
The server keeps running at {url}. In another terminal, try:

{activate}  cd {folder}
  headwater features list
  headwater events publish purchase ada amount=12.5
  headwater features get total_spend ada
  headwater index search help "My drill is broken."
  headwater context list

Press Ctrl-C to stop. The folder stays."""

app = command_group("Show a short tour on a real server.")


@app.command()
def demo(
    *,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the server running until Ctrl-C, and keep the folder."),
    ] = False,
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
    with _example_folder(keep=keep) as folder, DemoServer(folder, port) as server:
        tour = Tour(server, console)
        tour.run()
        try:
            if as_json:
                print_json({"url": server.url, "steps": tour.steps})
            if keep:
                console.print(_KEPT.format(url=server.url, folder=folder, activate=_activation()))
                while True:
                    signal.pause()
        except KeyboardInterrupt:
            console.print("\nStopping.")
    if not keep:
        console.print(_DONE.format(activate=_activation()))


def _activation() -> str:
    """Return the line that puts `headwater` on the PATH, if it is not there."""
    script = Path(sys.prefix, "bin", "activate")
    return f"  source {script}\n" if script.exists() and not shutil.which("headwater") else ""


@contextmanager
def _example_folder(*, keep: bool) -> Iterator[Path]:
    """Yield a new folder with a copy of the shipped example."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        for name in ("features.py", "orders.csv"):
            with as_file(files("headwater.cli.demo") / name) as shipped:
                shutil.copy(shipped, folder)
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
