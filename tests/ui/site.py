"""A real `headwater serve` in a process, with a store to look at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.servers import quiet_port

Found = TypeVar("Found")

FEATURES = Path(__file__).with_name("features.py")
SECONDS = 90.0
"""How long a condition may take on a slow machine."""

ARTICLES = {
    "returns": "Return anything within 30 days. Refunds arrive within three working days.",
    "shipping": "Parcels to Germany and Austria take two days. Express parcels take one day.",
    "gift-cards": "Gift cards never expire. They can pay for a part of an order.",
    "warranty": "Lamps have a warranty of five years. Keep the receipt, it is the warranty.",
}
QUESTIONS = (
    "How long does a refund take?",
    "Do you ship to Austria?",
    "Can I pay a part with a gift card?",
    "Is my lamp still under warranty?",
)
CUSTOMERS = {"ada": "Ada Lovelace", "alan": "Alan Turing", "grace": "Grace Hopper"}


def until(condition: Callable[[], Found], seconds: float = SECONDS) -> Found:
    """Return the first result of a condition that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)
    return found


class Site:
    """A server with its own store, or with the one of another."""

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str],
        features: Path = FEATURES,
        python: Path = Path(sys.executable),
    ) -> None:
        self.home = home
        self.environment = dict(environment)
        self.features = features
        self.python = python
        self.port = quiet_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key: str | None = None
        """The key that requests send."""
        self.keys: dict[str, str] = {}
        """Keys of the server by the name of their role."""
        self.records: list[str] = []
        """Ids of the contexts that ``fill`` has assembled, oldest first."""
        self.is_shared = False
        """Whether several tests use it, none of which stops it."""
        self._process: subprocess.Popen[str] | None = None
        self._client = httpx.Client(base_url=self.url, timeout=SECONDS)

    def start(self, *options: str) -> Site:
        """Start the server, and return when it answers."""
        inherited = {name: text for name, text in os.environ.items() if "HEADWATER" not in name}
        log = self.home / "server.log"
        command = [str(self.python), "-m", "headwater", "serve", str(self.features)]
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--json", *options],
                cwd=self.home,
                env=inherited | {"HEADWATER_HOME": str(self.home / "store")} | self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"the server ended at its start: {log.read_text()[-4_000:]}"
        assert json.loads(line)["url"] == self.url
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server; it can be started again at the same address."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(SECONDS)
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """Stop the server for good."""
        self.thaw()
        self.stop()
        self._client.close()

    @contextmanager
    def shared(self) -> Iterator[Site]:
        """Run the server for several tests."""
        self.is_shared = True
        self.start()
        try:
            yield self
        finally:
            self.close()

    def freeze(self) -> None:
        """Let the server answer nothing, until ``thaw``."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the server answer again, if it is running."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the body of a successful response of the API."""
        headers = {"X-API-Key": self.key} if self.key else {}
        response = self._client.request(method, path, json=body, headers=headers)
        assert response.is_success, f"{method} {path}: {response.text}"
        return response.json() if response.content else None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body)

    def publish(self, event_type: str, entity_id: str, **payload: Any) -> None:
        """Publish an event; ``drain`` waits until it was handled."""
        self.publish_many([(event_type, entity_id, payload)])

    def publish_many(self, events: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
        """Publish events: each a type, an entity id and a payload."""
        names = ("event_type", "entity_id", "payload")
        self.post("/ingest", [dict(zip(names, event, strict=True)) for event in events])

    def assemble(self, name: str, **parameters: Any) -> str:
        """Assemble and record a context; return its id."""
        answer = self.post(f"/v1/contexts/{name}", {"params": parameters})
        self.records.append(answer["context_id"])
        return self.records[-1]

    def index(self, document: str, text: str) -> None:
        """Index a document of the help pages."""
        self.request("PUT", f"/v1/index/help/{document}", {"text": text})

    def drain(self) -> None:
        """Wait until all published events were handled."""
        until(lambda: sum(each["waiting"] for each in self.get("/v1/lag")["partitions"]) == 0)

    def fill(self) -> Site:
        """Fill the store: values, contexts fresh and stale, dropped items, dead letters."""
        for document, text in ARTICLES.items():
            self.index(document, text)
        self.publish_many(_events())
        self.drain()
        until(lambda: self.get("/v1/features/past_orders?entity_id=ada")["value"] == 7)
        for customer in CUSTOMERS:
            for question in QUESTIONS:
                self.assemble("support", user_id=customer, question=question)
        self.assemble("restock", sku="lamp")
        return self


def _events() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for number, (customer, named) in enumerate(CUSTOMERS.items(), 1):
        yield "signed_up", customer, {"name": named}
        for order in range(number * 4):
            yield "purchase", customer, {"amount": 9.5 * (order + 1), "order": order}
        yield "visit", customer, {}
    yield "refund", "ada", {"amount": 5}
    for country, kg in (("DE", 2), ("XX", 1), ("XX", 3), ("AT", "heavy")):
        yield "checkout", "ada", {"country": country, "kg": kg}
    for sku in ("lamp", "tent"):
        yield "stock_counted", sku, {"units": 12}
