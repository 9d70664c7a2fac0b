"""`headwater demo`: a tour of a small shop on a real server."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Self

import msgspec
import typer
from rich.console import Console

from headwater.cli.commands import Call, Commands
from headwater.cli.demo.shop.week import Event, Question, Shop
from headwater.cli.demo.tour import DemoError, DemoServer, Tour, without_ui
from headwater.cli.output import print_json
from headwater.http.server.processes import stop_signals
from headwater.records.signing import generate_key
from headwater.settings.loading import FILE, environment_without_settings

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
app = Commands()
_SHIPPED = ("features.py", "customers.csv", "suppliers.csv")
_SIGNING_PACKAGE = "cryptography"
_SETTINGS = """\
partitions = 4

[prices] # in nano-USD per million input tokens
gpt-4o = 2_500_000_000
gpt-4o-mini = 150_000_000
claude-sonnet-4-5 = 3_000_000_000
"""
_PAUSE_SECONDS = 1.0
_RETRY_SECONDS = 5.0


@app.command()
def demo(
    call: Call,
    *,
    keep: bool = False,
    days: Annotated[int, typer.Option(min=1, max=28)] = 7,
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 0,
) -> None:
    """Show a short tour: events, features, a crash, search by meaning, and a verified context.

    The tour runs a real server in a temporary folder. It needs nothing but this package, exits
    when it is done, and removes the folder.

    Args:
        keep: Then serve a larger shop, with made-up data, until Ctrl-C, and keep its folder.
        days: With --keep: how many days of made-up data.
        port: Port to listen on; 0 takes a free port.
    """
    # Every stop signal cleans up the server and the folder as Ctrl-C does.
    for number in stop_signals():
        signal.signal(number, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True, quiet=call.as_json)
    with ExitStack() as stack:
        # The data takes longer to write than the tour takes to read, so it begins first.
        shop = _start_shop(stack, days) if keep else None
        with _example_folder() as folder, DemoServer(folder, port) as server:
            tour = Tour(server, console)
            tour.run()
        if shop is None:
            if call.as_json:
                print_json({"url": server.url, "steps": tour.steps})
            console.print(_DONE.format(activate=_activation()))
            return
        console.print(_FILLING.format(days=days))
        folder, filling = shop
        filling.finish()
        server = stack.enter_context(DemoServer(folder, port))
        server.start()
        try:
            if call.as_json:
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


def write_shop(folder: Path) -> None:
    """Write the features file, the sources and the settings of the shop to a folder."""
    for name in _SHIPPED:
        with as_file(files("headwater.cli.demo") / "shop" / name) as shipped:
            shutil.copy(shipped, folder)
    signing = ""
    if find_spec(_SIGNING_PACKAGE):
        signing = f'signing_key = "{generate_key("shop-2026", "Ed25519")}"\n'
    (folder / FILE).write_text(signing + _SETTINGS, encoding="utf-8")


class Filling:
    """A process that fills the store of the shop with days of made-up data.

    Leaving the block ends the process, also if it is not done.
    """

    def __init__(self, folder: Path, days: int) -> None:
        self._log = folder / "filling.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.cli.demo.shop.filling", str(days)],
                cwd=folder,
                env=environment_without_settings(),
                stdout=output,
                stderr=output,
                start_new_session=True,  # a signal reaches only the demo, which ends this process
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def finish(self) -> None:
        """Wait until the store is filled; raise DemoError if that failed."""
        if self._process.wait():
            problem = self._log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
            raise DemoError(f"the made-up data could not be written: {problem}")


def trickle(server: DemoServer, seed: int = 17) -> None:
    """Let customers visit the shop until interrupted, one request after the other."""
    for what in _endless(Shop(seed)):
        try:
            send(server, what)
        except DemoError:
            # A strict context was refused, or the server is busy: customers come back.
            time.sleep(_RETRY_SECONDS)
        time.sleep(_PAUSE_SECONDS)


def _endless(shop: Shop) -> Iterator[Event | Question]:
    shop.know_everybody()
    while True:
        for happening in shop.visit(datetime.now(UTC)):
            if isinstance(happening.what, Event | Question):
                yield happening.what


def send(server: DemoServer, what: Event | Question) -> str:
    """Publish an event, or assemble a context and publish its rating; return the new id."""
    if isinstance(what, Event):
        event = {"entity_id": what.entity_id, "payload": what.payload}
        accepted = server.request("POST", f"/ingest/{what.event_type}", _json(event))
        return str(accepted["event_id"])
    question: dict[str, object] = {"params": what.params, "interaction_ref": what.interaction}
    if what.max_tokens is not None:
        question |= {"max_tokens": what.max_tokens}
    asked = server.request("POST", f"/v1/contexts/{what.context}", _json(question))
    if what.is_helpful is not None:
        send(server, what.rating(asked["context_id"]))
    return str(asked["context_id"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
