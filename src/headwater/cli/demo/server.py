"""The demo's server: a real `headwater serve` in a child process, and requests to it."""

import http.client
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from headwater.errors import HeadwaterError
from headwater.settings.loading import environment_without_settings
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

_TIMEOUT_SECONDS = 30.0
_END_OF_LOG = 2_000


class DemoError(HeadwaterError):
    """The demo did not go as it should."""


class Response(msgspec.Struct, frozen=True):
    """What the server answered."""

    status: int
    body: Any


class Shop:
    """The example in its folder, served; it can be killed and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Starts the server, on the same port as before, and returns when it is ready."""
        command = [sys.executable, "-m", "headwater", "serve", "features.py", "--json"]
        command += ["--port", str(urlsplit(self.url).port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment_without_settings(),
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for us; we then let the server finish.
                start_new_session=True,
            )
        ready = self._process.stdout.readline() if self._process.stdout else b""
        if not ready:
            end = self._log.read_text(errors="replace")[-_END_OF_LOG:].strip()
            raise DemoError(f"the demo's server did not start; it said: {end}")
        self.url = msgspec.json.decode(ready)["url"]

    def stop(self) -> int:
        """Lets the server finish and gives its exit code."""
        return self._end("terminate")

    def kill(self) -> None:
        """Ends the server in the middle of whatever it does, as a crash would."""
        self._end("kill")

    def _end(self, how: str) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if how == "kill":
            process.kill()
        else:
            process.terminate()
        if process.stdout:
            process.stdout.close()
        return process.wait(_TIMEOUT_SECONDS)

    def request(self, method: str, path: str, body: bytes = b"") -> Response:
        """Makes one request; the address is local, so no proxy is asked."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_TIMEOUT_SECONDS)
        kind = "application/x-ndjson" if path == "/ingest" else "application/json"
        try:
            connection.request(method, path, body or None, {"Content-Type": kind} if body else {})
            answer = connection.getresponse()
            return Response(answer.status, msgspec.json.decode(answer.read()))
        except OSError as error:
            raise DemoError(f"the demo's server does not answer at {self.url}: {error}") from error
        finally:
            connection.close()

    def command(self, *words: str) -> list[str]:
        """What `headwater` says to these words, in the folder of the example."""
        done = subprocess.run(
            [sys.executable, "-m", "headwater", *words],
            cwd=self.folder,
            env=environment_without_settings(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode:
            said = (done.stdout + done.stderr)[-_END_OF_LOG:].strip()
            raise DemoError(f"`headwater {' '.join(words)}` failed; it said: {said}")
        return done.stdout.splitlines()

    def store(self) -> FeatureStore:
        """The server's own store, opened by this process at the same time."""
        settings = Settings().replace(home=self.folder / ".headwater", log={"level": "error"})
        return FeatureStore(settings=settings)
