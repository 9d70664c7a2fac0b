"""The demonstration: it runs by itself, shows what it promises and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from headwater.cli.demo.printer import Story
from headwater.cli.demo.server import DemoError, Shop
from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store
from tests.cli.conftest import Start, wait_until

DEMO = (sys.executable, "-m", "headwater", "demo")


@pytest.fixture
def temp(folder: Path) -> Path:
    """Where the demo makes its folder."""
    temp = folder / "temp"
    temp.mkdir()
    return temp


def test_the_demo_ends_by_itself_and_shows_values_changing(temp: Path) -> None:
    # Settings of whoever runs it must not change what it shows.
    mine = {"TMPDIR": str(temp), "HEADWATER_API_KEY": "mine", "HEADWATER_HOME": "elsewhere"}
    shown = subprocess.run(
        DEMO, env=os.environ | mine, capture_output=True, text=True, timeout=60, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    for line in (
        "async def total_spend(user_id: str, event: ServiceEvent) -> float:",
        "total_spend of ada: 0.0 → 40.0",
        '⇒ "gold customer: 100.0 spent, 3 past orders"',
        "LookupError: no parcel rate for NO",
        "parcel_fee of ada: null → 9.0",
        "→ 500.0",
        "async def support(user_id: str, question: str) -> list[ContextItem]:",
        "⇒ 55 of 70 tokens",
        "│ A parcel to another country takes five days, and its fee is shown at checkout.",
        "⇒ 4 kept, 2 dropped",
        "help-3    dropped, because its 26 tokens did not fit",
        "freshness guaranteed",
        "record    sha256:",
        "reassembly   4 kept items make up the text",
        "Nothing is broken",
        "headwater demo --keep",
    ):
        assert line in shown.stdout
    assert "\x1b" not in shown.stdout
    assert list(temp.iterdir()) == []


def test_the_demo_can_be_kept_and_be_read_by_a_machine(temp: Path, start: Start) -> None:
    demo = start("demo", "--keep", TMPDIR=str(temp))
    shown = demo.document()
    assert shown["url"].startswith("http://127.0.0.1:")
    titles = [step["title"] for step in shown["steps"]]
    assert titles[0] == "Events change a feature"
    *_, crashed, assembled = shown["steps"]
    crash = crashed["changes"][-1]
    assert crash["after"] == 500.0
    assert crash["before"] > 0, "the server was killed before it had done anything"
    context = assembled["calls"][0]["answer"]
    assert context["tokens"] <= context["lineage"]["max_tokens"]
    (verified,) = assembled["commands"]
    assert verified["command"] == f"headwater context verify {context['context_id']}"
    assert context["record_hash"] in verified["output"][0]
    assert demo.end(signal.SIGINT).code == 0
    (kept,) = temp.iterdir()
    assert (kept / "features.py").exists()


def test_the_demo_is_in_colour_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    Story(silent=False).code("def total() -> int: ...")
    assert "\x1b[" in capsys.readouterr().out


def test_the_shipped_example_can_be_served_as_it_is() -> None:
    shipped = Path(str(files("headwater.cli.demo"))) / "features.py"
    declared = runtime_of(load_store(shipped)).registry
    assert "total_spend" in declared.features
    assert "support" in declared.contexts


def test_a_demo_that_is_interrupted_cleans_up(temp: Path, start: Start) -> None:
    demo = start("demo", TMPDIR=str(temp))
    wait_until(lambda: list(temp.glob("*/server.log")))
    assert demo.end(signal.SIGTERM).code == 130
    assert list(temp.iterdir()) == []


def test_a_demo_whose_server_does_not_start_says_why(folder: Path) -> None:
    (folder / "features.py").write_text("1 / 0\n")
    with pytest.raises(DemoError, match="ZeroDivisionError"), Shop(folder, 0):
        pass


def test_a_command_of_the_demo_that_fails_says_why(folder: Path) -> None:
    shop = Shop(folder, 0)
    with pytest.raises(DemoError, match=r"`headwater context show 00000000` failed; it said: .*no"):
        shop.command("context", "show", "00000000")
