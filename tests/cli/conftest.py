"""A folder with a features file, and ways to run the command line in it."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import msgspec
import pytest
import uvicorn

from headwater import FeatureStore, create_app
from headwater.access.key_format import generate_api_key, hash_of
from headwater.access.keys_file import ApiKey, changing_keys
from headwater.cli import main
from headwater.features import reconcile
from headwater.http.server.web_server import listen
from headwater.store.loader import load_store
from tests.fork_server import Copy, ForkServer

FEATURES = '''
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="purchase", max_retries=0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    """What a user has spent."""
    before = await store.get_feature("total_spend", user_id) or 0.0
    return before + event.payload["amount"]

@feature(entity=User, trigger=["visit", "click"], default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    return await store.get_feature("visits", user_id) + 1

@feature(entity=User, refresh="5m", materialize=True, sql="SELECT 'u1' AS user_id, 1 AS value")
def orders(user_id: str) -> int: ...

@feature(entity=User)
def shout(user_id: str) -> str:
    return user_id.upper() + "!"

@feature(entity=User, template="{shout} spent {total_spend}")
def blurb(user_id: str) -> str: ...

@feature(entity=User)
def broken(user_id: str) -> int:
    return 1 // 0
'''


# For tests that count events: a tick every five minutes may come between two of their steps.
FEATURES_WITH_RARE_TICKS = FEATURES.replace('refresh="5m"', 'refresh="365d"')

PATIENCE_SECONDS = 60.0


class Ran(NamedTuple):
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a features file and default settings."""
    for name in list(os.environ):
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features.py").write_text(FEATURES)
    return tmp_path


@pytest.fixture
def home(folder: Path) -> Path:
    """The home of an empty store."""
    home = folder / ".headwater"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""
    # An audit reads differences again, later and later, in case that workers are writing.
    monkeypatch.setattr(reconcile, "_PAUSES_SECONDS", (0.0, 0.0))

    def run(*arguments: str, stdin: str | bytes = "") -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["headwater", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return Ran(int(exit_.value.code or 0), captured.out, captured.err)

    return run


class Process:
    """A command in a child process; the first line of its output is JSON."""

    def __init__(self, process: Copy | subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def next_line(self) -> Any:
        """Wait for the next line of JSON."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, self._process.stderr and self._process.stderr.read()
        return msgspec.json.decode(line)

    def document(self) -> Any:
        """Wait for a JSON document of several lines."""
        assert self._process.stdout
        lines = ""
        for line in self._process.stdout:
            lines += line
            if line == "}\n":
                break
        return msgspec.json.decode(lines)

    def errors_until(self, text: str) -> str:
        """Wait for a text on stderr, and return all lines up to it."""
        assert self._process.stderr
        lines = ""
        for line in self._process.stderr:
            lines += line
            if text in line:
                return lines
        raise AssertionError(f"{text!r} was never said, but: {lines}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals | None = signal.SIGTERM) -> Ran:
        """Send a signal, wait for the end and return the remaining output."""
        if number:
            self.send(number)
        out, err = self._process.communicate(timeout=PATIENCE_SECONDS)
        return Ran(self._process.wait(), out, err)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with self._process:
            pass


Start = Callable[..., Process]


@pytest.fixture
def start(folder: Path, copied: ForkServer) -> Iterator[Start]:
    """Start commands as processes, and end them after the test."""
    with ExitStack() as ending:

        def start(*arguments: str, **environment: str) -> Process:
            variables = os.environ | environment
            copy = copied.start(*arguments, "--json", variables=variables, folder=folder)
            ending.callback((process := Process(copy)).kill)
            return process

        yield start


@pytest.fixture
def start_anew(folder: Path) -> Iterator[Start]:
    """Start commands as ``start`` does, but each in a new interpreter."""
    with ExitStack() as ending:

        def start(*arguments: str, **environment: str) -> Process:
            command = [sys.executable, "-m", "headwater", *arguments, "--json"]
            variables = os.environ | environment
            popen = subprocess.Popen(command, env=variables, stdout=PIPE, stderr=PIPE, text=True)
            ending.callback((process := Process(popen)).kill)
            return process

        yield start


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)


KEY = "the key of the tests of commands"
TENANT_KEY = generate_api_key("tenant")
AGENT_KEY = generate_api_key("agent")

MORE = """
from headwater import ContextItem, Index

docs = Index(store, "docs", embedder="lexical")

@store.context(max_tokens=100)
async def support(user_id: str, top: int = 1) -> list[ContextItem]:
    spent = await store.get_feature("total_spend", user_id)
    return [ContextItem(f"spent {spent}, top {top}")]
"""


def _serve(store: FeatureStore) -> tuple[uvicorn.Server, threading.Thread, str]:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(store), log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    return server, thread, f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, FeatureStore]]:
    """The URL of a server with keys, and its store."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "served_features.py").write_text(FEATURES + MORE)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
            patch.delenv(name)
        patch.setenv("HEADWATER_HOME", str(folder / "home"))
        patch.setenv("HEADWATER_API_KEY", KEY)
        patch.setenv("HEADWATER_KEYS_FILE", str(folder / "keys.toml"))
        store = load_store(folder / "served_features.py")
    with changing_keys(folder / "keys.toml") as keys:
        keys["tenant"] = ApiKey(
            hash=hash_of(TENANT_KEY), scopes=frozenset({"read"}), tenant="acme-"
        )
        keys["agent"] = ApiKey(hash=hash_of(AGENT_KEY), scopes=frozenset({"assemble"}))
    server, thread, url = _serve(store)
    yield url, store
    server.should_exit = True
    thread.join(PATIENCE_SECONDS)


@pytest.fixture
def remote(
    served: tuple[str, FeatureStore], run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run a command on the server, from a folder without a store and a features file."""
    (folder / "features.py").unlink()
    monkeypatch.setenv("HEADWATER_CLIENT_URL", served[0])
    monkeypatch.setenv("HEADWATER_CLIENT_KEY", KEY)
    return run
