"""Open the shop: write its folder, fill its store, and let customers visit it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import msgspec

from headwater.cli.demo.shop.week import Event, Question, Shop
from headwater.cli.demo.tour import DemoError, DemoServer
from headwater.messages.parts import Message
from headwater.records.signing import generate_key
from headwater.settings.loading import FILE, environment_without_settings

_COPIED = ("features.py", "customers.csv", "suppliers.csv")
_SIGNING_PACKAGE = "cryptography"
_PAUSE_SECONDS = 1.0
_RETRY_SECONDS = 5.0


def write_shop(folder: Path) -> None:
    """Write the features file, the sources and the settings of the shop to a folder."""
    here = Path(__file__).parent
    for name in _COPIED:
        shutil.copy(here / name, folder)
    signing = ""
    if find_spec(_SIGNING_PACKAGE):
        signing = f'signing_key = "{generate_key("shop-2026", "Ed25519")}"\n'
    settings = (here / FILE).read_text(encoding="utf-8")
    (folder / FILE).write_text(signing + settings, encoding="utf-8")


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
    """Publish an event, or assemble a context and send its answer and rating; return the id."""
    if isinstance(what, Event):
        event = {"entity_id": what.entity_id, "payload": what.payload}
        accepted = server.request("POST", f"/ingest/{what.event_type}", _json(event))
        return str(accepted["event_id"])
    question: dict[str, object] = {"params": what.params, "interaction_ref": what.interaction}
    if what.max_tokens is not None:
        question |= {"max_tokens": what.max_tokens}
    asked = server.request("POST", f"/v1/contexts/{what.context}", _json(question))
    sent = msgspec.convert((asked["request"] or {}).get("messages", []), list[Message])
    for outcome in what.outcomes(sent, asked["tokens"]):
        server.request("POST", f"/v1/context/{asked['context_id']}/outcomes", _json(outcome))
    if what.is_helpful is not None:
        send(server, what.rating(asked["context_id"]))
    return str(asked["context_id"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
