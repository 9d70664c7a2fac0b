"""`headwater demo`: a tour of a small shop on a real server."""

import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from headwater.cli.commands import CommandCall, Commands
from headwater.cli.demo.shop.opening import Filling, trickle, write_shop
from headwater.cli.demo.tour import TEXTS, DemoServer, Tour, without_ui
from headwater.cli.output import print_json
from headwater.http.server.processes import stop_signals

app = Commands()


@app.command()
def demo(
    call: CommandCall,
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
    script = Path(sys.prefix, "bin", "activate")
    activate = f"  source {script}\n" if script.exists() and not shutil.which("headwater") else ""

    def end(text: str) -> None:
        if call.as_json:
            print_json({"url": server.url, "steps": tour.steps})
        console.print(text)

    with ExitStack() as stack:
        # The data takes longer to write than the tour takes to read, so it begins first.
        shop = Path(mkdtemp(prefix="headwater-shop-")) if keep else None
        if shop is not None:
            write_shop(shop)
            filling = stack.enter_context(Filling(shop, days))
        with (
            TemporaryDirectory(prefix="headwater-demo-", ignore_cleanup_errors=True) as folder,
            DemoServer(Path(folder), port) as server,
        ):
            for name in ("features.py", "orders.csv"):
                shutil.copy(Path(__file__).parent / "example" / name, folder)
            tour = Tour(server, console)
            tour.run()
        if shop is None:
            end(TEXTS["done"].format(activate=activate))
            return
        console.print(TEXTS["filling"].format(days=days))
        filling.finish()
        server = stack.enter_context(DemoServer(shop, port))
        server.start()
        try:
            facts = {"url": server.url, "without_ui": without_ui(), "folder": shop, "days": days}
            end(TEXTS["kept"].format(activate=activate, **facts))
            trickle(server)
        except KeyboardInterrupt:
            console.print("\nStopping.")
