"""Notebooks: verbs of store.sync are tables, long reads show a bar, and results are HTML."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pandas as pd
import polars as pl
import pytest

from headwater import ContextItem, Document, FeatureStore, Index, ServiceEvent, entity, feature
from headwater.client import Client
from headwater.core import html, progress
from headwater.core.tables import Table
from headwater.errors import ConfigError
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.store.verbs.store import SyncVerbs
from headwater.testing import ManualClock

EVIL = "<script>alert(1)</script> <img src=x onerror=alert(2)> \u202e&\"'"


class Shop:
    """A store with two features, an index and two contexts, and values of three users."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="purchase", default=0.0, unit="EUR", owner="payments & co")
        async def total_spend(user_id: str, event: ServiceEvent) -> float:
            """All that a user has spent, <b>ever</b>."""
            spent = await store.get_feature("total_spend", user_id)
            return float(spent + event.payload["amount"])

        @feature(entity=User, trigger="said", tags=("text",))
        def words(user_id: str, event: ServiceEvent) -> dict[str, str]:
            return {"last": event.payload["text"]}

        Index(store, "docs", embedder="lexical")

        @store.context(max_tokens=120, freshness_sla="1s")
        async def chat(user_id: str) -> list[ContextItem]:
            said = await store.get_feature("words", user_id)
            return [
                ContextItem(f"Never say {EVIL}", role="system", required=True),
                ContextItem(said["last"], role="user", priority=5),
                ContextItem("much too long " * 200, role="user", priority=1, section="<hr>"),
            ]

        @store.context(max_tokens=400)
        async def page(user_id: str) -> str:
            return f"{(await store.get_feature('words', user_id))['last']}"

        self.user = User
        self.total_spend, self.words, self.chat, self.page = total_spend, words, chat, page

    def fill(self) -> None:
        sync = self.store.sync
        for amount in (1.0, 2.0, 4.0):
            sync.publish("purchase", "ada", {"amount": amount})
        sync.publish("purchase", "bob", {"amount": 7, "note": EVIL})
        sync.publish("said", "ada", {"text": EVIL})
        sync.index("docs", "cards", "A card is blocked when it is lost.", {"lang": "en"})
        sync.drain()


@pytest.fixture
def shop(store: FeatureStore) -> Iterator[Shop]:
    made = Shop(store)
    made.fill()
    yield made
    store.sync.close()


class Tags(HTMLParser):
    """The names and attributes of all tags, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(result: object) -> Tags:
    """Return what a notebook shows; it has no script, link, image or style sheet."""
    tags = Tags(result._repr_html_())  # type: ignore[attr-defined]
    known = {"div", "table", "thead", "tbody", "tr", "th", "td", "span", "b", "pre", "details"}
    assert tags.names <= known | {"summary"}
    assert tags.attributes <= {"style"}
    return tags


@pytest.mark.both_environments
def test_verbs_of_store_sync_return_frames_where_tables_make_sense(shop: Shop) -> None:
    sync = shop.store.sync
    values = sync.get_features(["total_spend", "words"], ["ada", "bob"])
    assert values == {
        "ada": {"total_spend": 7.0, "words": {"last": EVIL}},
        "bob": {"total_spend": 7.0, "words": None},
    }
    frame = frame_of(values)
    assert list(frame.columns) == ["entity_id", "total_spend", "words"]
    assert frame["total_spend"].tolist() == [7.0, 7.0]
    assert frame["words"].tolist()[0] == {"last": EVIL}
    history = frame_of(sync.get_feature_history(shop.total_spend, "ada"))
    assert history["value"].tolist() == [7.0, 3.0, 1.0]
    assert str(history["as_of"].dtype) == "datetime64[us, UTC]"
    rows = frame_of(sync.get_feature_values([shop.total_spend], ["ada", "eve"]))
    assert rows["entity_id"].tolist() == ["ada", "eve"]
    assert rows["total_spend"].tolist() == [7.0, 0.0]
    assert rows["total_spend__source"].tolist() == ["online", "default"]
    events = frame_of(sync.bus.list())
    assert {"event_type", "entity_id", "payload", "timestamp", "received_at"} <= set(events)
    assert len(events) == 5
    assert frame_of(sync.catalog.features())["feature"].tolist() == ["total_spend", "words"]
    assert frame_of(sync.search("docs", "a lost card"))["document"].tolist() == ["cards"]
    assert frame_of(sync.indexes.list())["name"].tolist() == ["docs"]
    sync.run(shop.page("ada"))
    assert frame_of(sync.list_contexts())["name"].tolist() == ["page"]
    assert frame_of(sync.dead_letters.groups()).empty
    sync.admin.rebuild()
    assert "admin.rebuild" in frame_of(sync.audit_log())["action"].tolist()


def frame_of(result: object) -> pd.DataFrame:
    """Return a result as a frame of pandas, after a look at its HTML."""
    shown(result)
    frame = result.to_pandas()  # type: ignore[attr-defined]
    assert isinstance(frame, pd.DataFrame)
    return frame


def test_the_blocking_client_returns_the_same_frames(shop: Shop) -> None:
    transport = httpx.ASGITransport(create_app(shop.store))
    shop.store.sync.close()
    with Client("http://localhost", settings=Settings(), transport=transport) as client:
        sync: SyncVerbs[FeatureStore] = client  # type: ignore[assignment]
        assert frame_of(sync.get_features(["total_spend"], ["ada"]))["total_spend"].tolist() == [7]
        assert len(frame_of(sync.get_feature_history("total_spend", "ada"))) == 3
        assert len(frame_of(sync.bus.list())) == 5
        assert frame_of(client.declarations())["name"].tolist() == ["total_spend", "words"]
        client.run(shop.store.close())


def test_a_frame_is_of_polars_or_arrow_and_mixed_columns_are_json() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows: list[dict[str, object]] = [
        {"n": 1, "mixed": 1, "big": 2**70, "nested": {"a": [1]}, "at": at, "none": None},
        {"n": 2.5, "mixed": "x", "big": 1, "nested": None, "at": at, "none": None},
        {"n": None, "late": True},
    ]
    table = Table(rows)
    frame = table.to_polars()
    assert frame.schema["n"] == pl.Float64
    assert frame.schema["at"] == pl.Datetime("us", "UTC")
    assert frame["mixed"].to_list() == ["1", '"x"', None]
    assert frame["big"].to_list() == [str(2**70), "1", None]
    assert frame["nested"].to_list() == ['{"a":[1]}', None, None]
    assert frame["late"].to_list() == [None, None, True]
    assert table.to_arrow().to_pydict()["mixed"] == ["1", '"x"', None]
    assert Table([1, 2]).to_dicts() == [{"value": 1}, {"value": 2}]
    assert Table([]).to_pandas().empty
    assert Table([]).to_polars().is_empty()
    assert "no rows" in shown(Table([])).text


def test_a_table_is_a_list(shop: Shop) -> None:
    letters = shop.store.sync.dead_letters.list()
    assert letters == []
    assert isinstance(letters, list)
    assert repr(shop.store.sync.get_feature_history("words", "bob")) == "[]"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pandas is not installed; run `pip install pandas`"):
        Table([1]).to_pandas()


def test_code_of_handlers_gets_plain_lists(store: FeatureStore, user: type) -> None:
    kinds = []

    @feature(entity=user, trigger="login", default=0)
    def logins(user_id: str, event: ServiceEvent) -> int:
        kinds.append(type(store.sync.get_feature_values(["logins"], [user_id])))
        return 1

    store.sync.publish("login", "ada")
    store.sync.drain()
    assert kinds == [list]
    store.sync.close()


def test_long_tables_are_cut_and_say_so() -> None:
    many = shown(Table([{f"column {n}": n for n in range(50)}] * 30))
    assert "… 10 more rows" in many.text
    assert "… 20 more columns" in many.text
    (row,) = Table([{"text": "x" * 5_000}]).to_dicts()
    assert len(row["text"]) == 5_000
    assert len(shown(Table([row])).text) < 400


def test_the_html_of_features_shows_what_they_are(shop: Shop) -> None:
    page = shown(shop.total_spend).text
    for part in ("total_spend", "triggered feature of User", "float", "EUR", "payments & co"):
        assert part in page
    assert "All that a user has spent, <b>ever</b>." in page

    @feature(entity=shop.user, refresh="cron: 0 6 * * mon-fri Europe/Berlin")
    def morning(user_id: str) -> int:
        return 1

    assert "0 6 * * mon-fri Europe/Berlin" in shown(morning).text
    declared = shown(shop.store).text
    for part in ("FeatureStore ", "total_spend", "words", "purchase", "docs", "chat, page"):
        assert part in declared
    assert "total_spend (triggered)" in shown(shop.store.graph()).text


def test_the_html_of_contexts_shows_roles_budget_freshness_and_what_was_dropped(
    shop: Shop, clock: ManualClock
) -> None:
    clock.advance(timedelta(seconds=90))
    made = shop.store.sync.run(shop.chat("ada"))
    page = shown(made).text
    for part in ("system", "user", f"{made.tokens} of 120 tokens", "freshness degraded"):
        assert part in page
    assert "words: stale, 1m 30s old" in page
    assert "dropped: 1, truncated: 0, of 3" in page
    assert "over_budget<hr>" in page
    assert "<script>alert(1)</script>" in page
    assert "\u202e" not in page
    past = shop.store.sync.get_context_at(made.context_id)
    assert shown(past).text == page
    plain = shown(shop.store.sync.run(shop.page("ada"))).text
    assert "<script>alert(1)</script>" in plain
    assert "features read: 1" in plain


def test_a_withheld_context_shows_its_hash(settings: Settings, clock: ManualClock) -> None:
    private = settings.replace(record={"include_content": False})
    store = FeatureStore(settings=private, clock=clock)
    shop = Shop(store)
    shop.fill()
    made = store.sync.run(shop.page("ada"))
    past = store.sync.get_context_at(made.context_id)
    assert "(withheld: sha256:" in shown(past).text
    store.sync.close()


def test_a_long_read_shows_its_progress(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    rows = [{"user_id": "ada", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}] * 3
    sync = shop.store.sync
    sync.get_historical_features(rows, ["total_spend"], progress=True)
    assert "Get historical features: 3 of 3\n" in capsys.readouterr().err
    sync.indexes.load("docs", [Document(1, "one"), Document(2, "two")], progress=True)
    assert "Load: 2 documents\n" in capsys.readouterr().err
    sync.admin.rebuild(progress=True)
    assert "Rebuild: 2 of 2\n" in capsys.readouterr().err
    sync.backfills.run("total_spend", progress=True)
    assert "Run backfill: 4 of 4 replay\n" in capsys.readouterr().err
    sync.get_historical_features(rows, ["total_spend"], progress=False)
    steps: list[tuple[int, int]] = []
    sync.get_historical_features(
        rows, ["total_spend"], progress=lambda done, total: steps.append((done, total))
    )
    assert steps[-1] == (3, 3)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shop.store.sync.admin.rebuild(progress=True)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)
    assert "Rebuild ━" in shown
    assert " 2/2 " in shown


NOTEBOOK = """
import asyncio
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()

def cell(text):
    with capture_output() as captured:
        done = shell.run_cell(text)
    done.raise_error()
    shown = [output.data for output in captured.outputs]
    if done.result is not None:
        shown.append(shell.display_formatter.format(done.result)[0])
    for data in shown:
        print(data.get("text/html", data["text/plain"]))

cell('''
from headwater import FeatureStore, ServiceEvent
store = FeatureStore(home="home")

@store.entity
class User:
    user_id: str

@store.feature(User, trigger="purchase", default=0.0)
def last_amount(user_id: str, event: ServiceEvent) -> float:
    return event.payload["amount"]
''')
# A cell with await runs inside of a loop, where store.sync works as well.
cell('''
await store.publish("purchase", "ada", {"amount": 5.0})
store.sync.drain()
store.sync.get_features([last_amount], ["ada"])
''')
cell("store.sync.admin.rebuild(progress=True)")
cell("last_amount")
cell("await store.close()")
cell("store.sync.close()")
"""


def test_a_notebook_runs_the_blocking_form_inside_its_loop(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        cwd=tmp_path,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "last_amount" in done.stdout
    assert ">5.0</td>" in done.stdout
    assert "Rebuild: 1 of 1 in" in done.stdout
    assert "triggered feature of User" in done.stdout


def test_a_meter_is_never_longer_than_its_whole() -> None:
    assert "width:100%" in html.meter(500, 100)
    assert "width:100%" in html.meter(0, 0)
