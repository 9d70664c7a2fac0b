"""`headwater demo`: the shipped example on a real server, explained while it runs."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.demo.printer import Story
from headwater.cli.demo.script import take_tour
from headwater.cli.demo.server import Shop
from headwater.cli.options import AsJson, verbs
from headwater.cli.output import print_json

app = verbs("Show events changing features, and a context that is proved.")


@app.command()
def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Go on serving until Ctrl-C, and keep the folder.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on the loopback; 0 takes a free one.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show events changing features and a context being proved, on a real server.

    It needs nothing but this package and a temporary folder, ends by itself and leaves nothing
    behind.
    """
    # So that the server and the folder are cleaned up as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    story = Story(silent=as_json)
    with _folder(keep=keep) as folder, Shop(folder, port) as shop:
        take_tour(shop, story)
        try:
            if as_json:
                print_json({"url": shop.url, "steps": story.steps})
            if keep:
                story.tell_how_to_go_on(shop.url, folder)
                while True:
                    signal.pause()
        except KeyboardInterrupt:
            story.end()
    if not keep:
        story.tell_what_next(Path(str(files("headwater.cli.demo"))))


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A new folder with a copy of the shipped example, so that it can be changed and served."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        for name in ("features.py", "orders.csv"):
            with as_file(files("headwater.cli.demo") / name) as shipped:
                shutil.copy(shipped, folder)
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
