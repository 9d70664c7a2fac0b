"""A reader who follows a page: saves its files, types its commands, compares what is shown."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, NamedTuple

from tests.docs.pages import Block, blocks

STAND_IN = Path(__file__).parent / "stand_in" / "curl"
"""A script that understands the options of curl which our pages use."""

EDIT = re.compile(r"change `([^`]+)` to\s+`([^`]+)`\s+in `([\w.]+)`")
_RUN = re.compile(r"run `python ([\w.]+)`")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", flags=re.M)
_SERVING = re.compile(r"^Serving ", flags=re.M)
_FAILS = re.compile(r"^(?:error: | *warning )", flags=re.M)
_PROBLEM = "urn:headwater:problem:"
_PATIENCE_SECONDS = 120.0
_GRACE_SECONDS = 10.0
_PAUSE_SECONDS = 0.05

# What differs in each run, and what stands for it in a comparison.
_VARIES = [
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-[0-9a-f-]{22}|…)"), "UUID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00)"), "TIME"),
    (re.compile(r'"age_ms":\d+'), '"age_ms":AGE'),
    (re.compile(r"\b\d+(?:\.\d+)?m?s\b"), "AGE"),
    (re.compile(r" {2,}"), " "),
]
# The words of commands that stand for what an earlier command printed.
_NAMES = {
    "ID": re.compile(r'(?:"context_id":"|context show )([0-9a-f-]{36})'),
    "KEY": re.compile(r"^(hw_\w+)$", re.M),
}


def is_shown(shown: str, printed: str) -> bool:
    """Return whether a page shows what was printed: `…` is any text, and a line of it any lines."""
    groups = re.split(r"^…$\n?", _plain(shown), flags=re.M)
    pattern = r"(?:.*\n)*?".join(re.escape(group).replace("…", ".*") for group in groups)
    return re.fullmatch(pattern, _plain(printed)) is not None


def _plain(text: str) -> str:
    """Return a text without the times, ages and ids that differ in each run, and in one form."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.strip().splitlines())


class Lasting(NamedTuple):
    """A command that runs until Ctrl-C, in another terminal.

    It is stopped once ``until`` has been printed or, if it is given, before the command ``ends``.
    """

    until: str
    ends: str | None = None


class Reader:
    """Follows pages in a folder, with a terminal of bash and further ones for lasting commands.

    Args:
        folder: The working directory.
        port: The port that takes the place of 8000.
        lasting: Commands that do not end by themselves.
        left_out: Beginnings of commands that are not run, with the reason.
        variables: More environment variables.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 8000,
        lasting: Mapping[str, Lasting] | None = None,
        left_out: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.commands: list[str] = []
        self._port = port
        self._lasting, self._left_out = lasting or {}, left_out or {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._known: dict[str, str] = {}
        self._outputs = Path(mkdtemp(prefix="reader-"))
        self._environment = {**_plain_environment(port), **(variables or {})}
        self._bash = self._start(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def follow(self, page: Path) -> None:
        """Save, edit and run what a page tells, block by block."""
        text, before = page.read_text(encoding="utf-8").splitlines(), 0
        for block in blocks(page):
            said = "\n".join(text[before : block.line])
            before = block.line + block.text.count("\n")
            for old, new, name in EDIT.findall(said):
                self.edit(name, old, new)
            if block.title:
                self.save(block.title, block.text)
                if block.title in _RUN.findall(said):
                    lines = re.findall(r"^#> ?(.*)$", block.text, flags=re.M)
                    self.run(f"python {block.title}", "\n".join(lines))
            elif block.language == "console":
                self.play(block)

    def play(self, block: Block) -> None:
        """Run the commands of a block, and compare the output that it shows."""
        for command, shown in _COMMAND.findall(block.text):
            if not any(map(command.startswith, self._left_out)):
                self.run(re.sub(r"\s+# .*", "", command), shown)

    def save(self, name: str, text: str) -> None:
        """Save a file; if it is Python and changes, wait until servers that reload have done so."""
        file, served = self.folder / name, dict[str, int]()
        is_new = not file.exists() or file.read_text(encoding="utf-8") != text
        if is_new and file.suffix == ".py":
            served = {each: self._times_served(each) for each in self._running if "dev" in each}
        file.write_text(text, encoding="utf-8")
        for each, times in served.items():
            _wait(partial(self._has_served, each, times), f"{each} restarts")

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace the one place of a text in a file."""
        text = (self.folder / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        self.save(name, text.replace(old, new))

    def run(self, command: str, shown: str = "") -> None:
        """Run a command as a reader does, and compare its output with what is shown, if any is.

        What is not shown yet is read again, as by a reader who is faster than the worker.
        """
        self.commands.append(command)
        for each in [each for each in self._running if self._lasting[each].ends == command]:
            self.stop(each)
        if command in self._lasting:
            self._run_lasting(command)
            return
        is_read = re.match(
            r"headwater (features get|dlq list|index|lag)|curl -s '?localhost:8000/v1/features",
            command,
        )
        deadline = time.monotonic() + (_PATIENCE_SECONDS if shown and is_read else 0.0)
        while True:
            code, out, err = self._finish(command)
            is_as_shown = not shown or is_shown(shown, out) or is_shown(shown, out + err)
            if is_as_shown or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_SECONDS)
        said = f"{command}\n{out}{err}"
        assert is_as_shown, said
        assert (code != 0) == bool(_FAILS.search(shown)), said
        assert _PROBLEM not in out or _PROBLEM in shown, said
        for name, pattern in _NAMES.items():
            if found := pattern.findall(out):
                self._known[name] = found[-1]

    def stop(self, command: str) -> None:
        """Press Ctrl-C in the terminal of a lasting command."""
        process = self._running.pop(command)
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(_PATIENCE_SECONDS)
        finally:
            if process.poll() is None:
                _kill(process)

    def close(self) -> None:
        """End everything that was started, also after one of them did not end by itself."""
        with ExitStack() as ending:
            ending.callback(shutil.rmtree, self._outputs)
            ending.callback(self._close_terminal)
            for command in self._running:
                ending.callback(self.stop, command)

    def _close_terminal(self) -> None:
        try:
            self._bash.communicate(b"kill $(jobs -p) 2> /dev/null; wait\n", _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(self._bash)

    def _finish(self, command: str) -> tuple[int, str, str]:
        """Type a command; return its exit code, output and errors when it has ended."""
        for name, value in self._known.items():
            command = re.sub(rf"\b{name}\b", value, command)
        command = command.replace("localhost:8000", f"localhost:{self._port}")
        out, err = self._outputs / "out", self._outputs / "err"
        code = self._type(f"{{ {command}\n}} > {out} 2> {err} < /dev/null")
        return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")

    def _type(self, line: str) -> int:
        """Type into the terminal and return the exit code; then forget jobs that ended."""
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(f"{line}\necho $?; jobs > /dev/null\n".encode())
        self._bash.stdin.flush()
        return int(self._bash.stdout.readline())

    def _run_lasting(self, command: str) -> None:
        lasting = self._lasting[command]
        output = self._output_of(command)
        with output.open("wb") as file:
            shell = ["bash", "-c", f"exec {command}"]
            self._running[command] = self._start(shell, stdout=file, stderr=subprocess.STDOUT)
        _wait(lambda: re.search(lasting.until, output.read_text()), f"{command} prints it")
        if lasting.ends is None:
            self.stop(command)

    def _start(self, command: Sequence[str], **streams: int | IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            start_new_session=True,
            stdin=streams.get("stdin"),
            stdout=streams["stdout"],
            stderr=streams.get("stderr"),
        )

    def _output_of(self, command: str) -> Path:
        return self._outputs / f"{re.sub(r'[^a-z]+', '-', command)}.log"

    def _has_served(self, command: str, times: int) -> bool:
        return self._times_served(command) > times

    def _times_served(self, command: str) -> int:
        return len(_SERVING.findall(self._output_of(command).read_text(encoding="utf-8")))


@contextmanager
def reading(reader: Reader) -> Iterator[Reader]:
    """Yield a reader, and end at the end what it has started."""
    try:
        yield reader
    finally:
        reader.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, which are in its process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(_PAUSE_SECONDS)


def _plain_environment(port: int) -> dict[str, str]:
    """Return the variables of a reader, who has no settings, and no key of a provider.

    Where curl is missing, a script sends its requests.
    """
    own = ("HEADWATER_", "OPENAI_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    folders = [str(Path(sys.executable).parent), kept["PATH"]]
    if shutil.which("curl") is None:
        folders.append(str(STAND_IN.parent))
    return kept | {
        "PATH": os.pathsep.join(folders),
        "HEADWATER_HTTP_PORT": str(port),
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
