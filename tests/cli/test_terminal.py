"""Questions on a real terminal, answered by key presses."""

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_SECONDS, Run, wait_until
from tests.cli.test_verbs import drain

CTRL_C = b"\x03"


class Terminal:
    """A command on a pseudo terminal, which turns Ctrl-C into a signal."""

    def __init__(self, *arguments: str) -> None:
        self._keys, screen = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headwater", *arguments],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)

    def until(self, text: str) -> str:
        """Wait until the screen shows a text, and return everything shown since."""
        shown = b""
        while text.encode() not in shown:
            part = self._read()
            assert part, f"{text!r} was never shown, but: {shown.decode()}"
            shown += part
        return shown.decode()

    def press(self, keys: bytes) -> None:
        # A signal between the question and the wait for its answer would be noticed with the next
        # key, which no user can press that fast.
        wait_until(self._waits)
        os.write(self._keys, keys)

    def rest(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and the remaining output."""
        shown = b""
        while part := self._read():
            shown += part
        return self._process.wait(PATIENCE_SECONDS), shown.decode()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._keys)

    def _waits(self) -> bool:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "S"

    def _read(self) -> bytes:
        readable, _, _ = select.select([self._keys], [], [], PATIENCE_SECONDS)
        assert readable, "the screen stays as it is"
        try:
            return os.read(self._keys, 65_536)
        except OSError:  # the other end is closed, which Linux tells so
            return b""


@pytest.fixture
def terminal(folder: Path) -> Iterator[Callable[..., Terminal]]:
    """Start commands on terminals, and end them after the test."""
    terminals: list[Terminal] = []

    def terminal(*arguments: str) -> Terminal:
        terminals.append(Terminal(*arguments))
        return terminals[-1]

    yield terminal
    for each in terminals:
        each.close()


@pytest.fixture
def letter(folder: Path, run: Run) -> str:
    """The id of a dead letter."""
    run("events", "publish", "purchase", "u1", "currency=EUR")
    drain(folder)
    (letter,) = run("dlq", "list", "--json").json
    return str(letter["id"])


@pytest.mark.parametrize("verb", ["redrive", "discard"])
def test_ctrl_c_at_the_question_ends_the_command_and_changes_nothing(
    run: Run, letter: str, terminal: Callable[..., Terminal], verb: str
) -> None:
    asked = terminal("dlq", verb, "--all")
    asked.until(f"{verb.capitalize()} 1 dead letter? [y/N]: ")
    asked.press(CTRL_C)
    asked.until("Aborted")  # without Enter
    code, shown = asked.rest()
    assert (code, "dead letter" in shown) == (1, False)
    assert [each["id"] for each in run("dlq", "list", "--json").json] == [letter]


def test_yes_at_the_question_discards(
    run: Run, letter: str, terminal: Callable[..., Terminal]
) -> None:
    asked = terminal("dlq", "discard", "--all")
    asked.until("[y/N]: ")
    asked.press(b"y\n")
    code, shown = asked.rest()
    assert code == 0
    assert "Discarded 1 dead letter." in shown
    assert run("dlq", "list", "--json").json == []


def test_an_index_is_built_with_a_bar_and_dropped_after_a_question(
    folder: Path, run: Run, terminal: Callable[..., Terminal]
) -> None:
    (folder / "features.py").write_text(
        "from headwater import FeatureStore, Index\n"
        "store = FeatureStore()\n"
        "Index(store, 'docs', embedder='lexical')\n"
    )
    (folder / "a.txt").write_text("Parcels arrive within 3 days.")
    (folder / "b.txt").write_text("Returns are free.")
    run("index", "build", "docs", "b.txt")

    for answer, told, documents in (
        (b"n\n", "Indexed 1 document in docs: 1 chunk.", 2),
        (b"y\n", "No new or changed documents for docs; 1 unchanged; 1 removed.", 1),
    ):
        asked = terminal("index", "build", "docs", "a.txt", "--delete-missing")
        built = asked.until("Remove 1 document of docs? [y/N]: ")
        assert ("100%" in built, "1 document (" in built) == (True, True)
        asked.press(answer)
        code, shown = asked.rest()
        assert (code, told in shown) == (0, True)
        assert run("index", "status", "--json").json[0]["documents"] == documents
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        asked = terminal("index", "drop", "docs")
        asked.until("Drop index docs, which has 1 document? [y/N]: ")
        asked.press(answer)
        assert asked.rest()[0] == code
    assert run("index", "status", "--json").json[0]["documents"] == 0
