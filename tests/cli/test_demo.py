"""`headwater demo`: it ends without input, prints its steps and removes its folder."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from headwater import verify_record
from headwater.cli.demo.shop.opening import Filling, send, write_shop
from headwater.cli.demo.shop.week import Event, Question, plan
from headwater.cli.demo.tour import DemoError, DemoServer, Tour
from headwater.declarations.runtime import runtime_of
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL
from headwater.store.loader import load_store
from tests.cli.conftest import Start, wait_until

DEMO = (sys.executable, "-m", "headwater", "demo")


@pytest.fixture
def temp(folder: Path) -> Path:
    """Return the folder for temporary files."""
    temp = folder / "temp"
    temp.mkdir()
    return temp


def test_the_demo_exits_with_0_and_shows_every_step(temp: Path) -> None:
    # The user's settings must not change the demo. Without an active environment, it tells how.
    mine = {"TMPDIR": str(temp), "HEADWATER_API_KEY": "mine", "HEADWATER_HOME": "elsewhere"}
    mine["PATH"] = os.defpath
    shown = subprocess.run(
        DEMO, env=os.environ | mine, capture_output=True, text=True, timeout=280, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    for line in (
        "While the tour lasts, its web UI is at http://127.0.0.1:",
        "async def total_spend(user_id: str, event: ServiceEvent) -> float:",
        "→ 100.0",
        '→ "gold customer: 100.0 spent, 3 past orders"',
        "LookupError: no shipping rate for NO",
        "→ 9.0",
        "→ 2000.0",
        "async def index_article(article_id: str, event: ServiceEvent) -> None:",
        "→ refunds, score 0.53, index version 1.",
        "The question and the article have no word in common.",
        "async def support(user_id: str, question: str) -> list[ContextItem]:",
        "of 80 tokens, freshness guaranteed",
        "│ system:",
        "│ A refund is paid within a week, to the card that was charged.",
        "help/delivery  dropped",
        "ok     hash ",
        "ok     reassembly ",
        '{"answer":"A refund is paid within a week, to the card that was charged."',
        "$ headwater context list --score helpful=true",
        "│ A refund is paid within two days, to the card that was charged.",
        "recorded with index version 1.",
        f"  source {sys.prefix}/bin/activate\n  headwater demo --keep",
        "  headwater init shop ",
    ):
        assert line in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "docs/" not in shown.stdout  # the wheel has no docs
    assert list(temp.iterdir()) == []


def test_the_demo_keeps_a_shop_with_keep(
    temp: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = start("demo", "--keep", "--days", "1", TMPDIR=str(temp))
    shown = demo.document()
    assert shown["url"].startswith("http://127.0.0.1:")
    titles = [step["title"] for step in shown["steps"]]
    assert titles[0] == "Events update features"
    *_, crashed, searched, assembled, answered, changed, evaluated = shown["steps"]
    killed = re.search(r"killed after (\d+) of 2000 events", "\n".join(crashed["lines"]))
    assert killed
    assert int(killed[1]) > 0, "the server was killed before it handled anything"
    assert "POST /v1/search/help" in "\n".join(searched["lines"])
    assert "$ headwater context verify" in "\n".join(assembled["lines"])
    assert "  support  guaranteed" in answered["lines"][-1]
    assert "within two days" in "\n".join(changed["lines"])
    assert "feature tier  changed  2" in "\n".join(evaluated["lines"])
    server = DemoServer(temp, urlsplit(shown["url"]).port or 0)
    newest = _newest_event(server)
    wait_until(lambda: _newest_event(server) != newest)
    asked = Question("support", {"user_id": "ada", "question": "Why?"}, is_helpful=True)
    rated = asked.rating(send(server, asked))
    wait_until(lambda: rated.payload in _payloads(server, "answer_rated"))
    assert demo.end(signal.SIGHUP).code == 0
    with pytest.raises(DemoError, match="does not respond"):
        server.request("GET", "/healthz")
    (kept,) = temp.iterdir()
    monkeypatch.chdir(kept)
    asyncio.run(_check_contents())


def _newest_event(server: DemoServer) -> object:
    return server.request("GET", "/v1/events?limit=1")["events"]


def _payloads(server: DemoServer, event_type: str) -> list[object]:
    found = server.request("GET", f"/v1/events?limit=10&event_type={event_type}")
    return [logged["event"]["payload"] for logged in found["events"]]


async def _check_contents() -> None:
    """Check that the store of the working directory has something of everything."""
    async with load_store("features.py") as store:
        recorded = (await store.list_contexts(limit=1_000)).contexts
        assert {each.name for each in recorded} == {
            "customer_brief",
            "fraud_brief",
            "newsletter",
            "onboarding",
            "support",
        }
        assert {each.freshness_status for each in recorded} >= {"degraded", "guaranteed"}
        records = [await store.get_record(each.context_id) for each in recorded]
        assert all(verify_record(record, store.settings.signing_key).ok for record in records)
        assert all(record.signature for record in records)
        assert [record.redactions[0].by for record in records if record.redactions] == ["dpo"]
        past = [await store.get_context_at(each.context_id) for each in recorded]
        decisions = {item.decision for each in past for item in each.lineage.items}
        assert decisions == {"kept", "dropped", "truncated"}
        (index,) = await store.indexes.list()
        assert [each.state for each in index.generations] == ["retired", "active"]
        document = await store.indexes.get_document("help", "refunds")
        assert document is not None
        assert document.version == 2
        letters = await store.dead_letters.list()
        assert len({letter.error.partition(":")[0] for letter in letters}) >= 2
        assert [each.state for each in await store.catalog.versions("total_spend")] == [
            "retired",
            "active",
        ]
        assert 0 < await store.get_feature("helpful_share", "support") < 1
        for score in ("helpful=true", "helpful=false"):
            assert (await store.list_contexts(score=score)).contexts
        answered = [each for each in recorded if each.name == "support"][:20]
        outcomes = [await store.records.outcomes(each.context_id) for each in answered]
        assert all(any(each.kind == "response" for each in found) for found in outcomes)


def test_the_week_is_the_same_each_time() -> None:
    end = datetime(2026, 11, 16, 12, tzinfo=UTC)
    week = plan(end, 7)
    assert week == plan(end, 7)
    assert [each.at for each in week] == sorted(each.at for each in week)
    assert timedelta(days=6, hours=23) < week[-1].at - week[0].at < timedelta(days=7)
    events = [each.what for each in week if isinstance(each.what, Event)]
    assert len(events) > 3_000
    busiest, (_, second) = Counter(event.entity_id for event in events).most_common(2)
    assert busiest[0] == "grace"
    assert busiest[1] > 2 * second


def test_a_shop_that_cannot_be_filled_says_why(folder: Path) -> None:
    write_shop(folder)
    (folder / "features.py").write_text("1 / 0\n")
    with (
        pytest.raises(DemoError, match=r"(?s)could not be written.*ZeroDivisionError"),
        Filling(folder, 1) as filling,
    ):
        filling.finish()


def test_the_demo_is_in_colour_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "features.py").write_text("1 / 0\n")
    console = Console(force_terminal=True, color_system="standard")
    with pytest.raises(DemoError, match="the example does not declare total_spend"):
        Tour(DemoServer(folder, 0), console).events()
    assert "\x1b[" in capsys.readouterr().out


def test_the_shipped_example_can_be_served_as_it_is() -> None:
    shipped = Path(str(files("headwater.cli.demo"))) / "example" / "features.py"
    declared = runtime_of(load_store(shipped)).registry
    assert "total_spend" in declared.features
    assert "support" in declared.contexts


def test_without_the_local_model_the_demo_says_that_search_is_lexical(
    folder: Path,
) -> None:
    shipped = files("headwater.cli.demo") / "example"
    source = (shipped / "features.py").read_text(encoding="utf-8")
    lexical = "store = FeatureStore()\nheadwater.Index(store, 'help', embedder='lexical')\n"
    source = source.replace("store = FeatureStore()\n", lexical)
    (folder / "features.py").write_text(
        source.replace("from headwater", "import headwater\nfrom headwater", 1)
    )
    (folder / "orders.csv").write_text((shipped / "orders.csv").read_text(encoding="utf-8"))
    with DemoServer(folder, 0) as server:
        server.start()
        tour = Tour(server, Console(quiet=True))
        question = tour.search()
        tour.changed_document(question)
    searched, changed = ("\n".join(step["lines"]) for step in tour.steps)
    assert "so this search is lexical" in searched
    assert f"\n   {INSTALL_LOCAL_MODEL}\n" in searched
    assert "→ refunds, score" in searched
    assert "no word in common" not in searched
    assert "within two days" in changed


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_cleans_up(
    temp: Path, start: Start, end: signal.Signals
) -> None:
    demo = start("demo", TMPDIR=str(temp))
    wait_until(lambda: list(temp.glob("*/server.log")))
    assert demo.end(end).code == 130
    assert list(temp.iterdir()) == []


def test_a_demo_whose_server_does_not_start_says_why(folder: Path) -> None:
    (folder / "features.py").write_text("1 / 0\n")
    with pytest.raises(DemoError, match="ZeroDivisionError"), DemoServer(folder, 0) as server:
        server.start()


def test_a_command_of_the_demo_that_fails_says_why(folder: Path) -> None:
    server = DemoServer(folder, 0)
    with pytest.raises(DemoError, match=r"`headwater context show 00000000` failed: error: .*"):
        server.run_command("context", "show", "00000000")
