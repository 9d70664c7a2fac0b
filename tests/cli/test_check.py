"""`headwater check`: warnings about code that is allowed, but probably wrong."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_verbs import drain

_FEATURES = """
from headwater import Chunk, FeatureStore, Index, retriever

store = FeatureStore()
articles = Index(store, "articles")


@retriever(store, index="{name}")
def search(question: str) -> list[Chunk]: ...
"""


def test_an_index_with_almost_a_declared_name_is_a_warning(run: Run, folder: Path) -> None:
    file = folder / "searching.py"
    file.write_text(_FEATURES.format(name="artciles"))
    ran = run("check", "searching.py")
    assert ran.code == 0
    assert "searching.py:8: a retriever names the index 'artciles'" in ran.err
    assert "did you mean 'articles'?" in ran.err
    for name in ("articles", "manuals"):
        file.write_text(_FEATURES.format(name=name))
        assert run("check", "searching.py").err == ""


_SCHEMA = """
from headwater import Event, FeatureStore, entity, event, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@event(store, "purchase")
class Purchase:
    \"\"\"Something was bought.\"\"\"

    amount: float
    tags: list[str] | None = None
    {field}


@feature(entity=User, trigger=["purchase", "visit"])
def amount(user_id: str, event: Event[Purchase | dict]) -> float:
    return event.payload.amount
"""


def test_declared_schemas_are_compared_with_stored_events(run: Run, folder: Path) -> None:
    file = folder / "schema.py"
    file.write_text(_SCHEMA.format(field=""))
    assert run("check", "schema.py").err == ""
    for number in range(3):
        event_id = f"e-{number}"
        publish = ("events", "publish", "purchase", "ada", "amount=5", "--file", "schema.py")
        assert run(*publish, "--event-id", event_id).code == 0
    refused = run("events", "publish", "purchase", "ada", "amount=much", "--file", "schema.py")
    assert (refused.code, "payload.amount does not fit Purchase" in refused.err) == (1, True)
    file.write_text(_SCHEMA.format(field='currency: str = "EUR"'))
    ran = run("check", "schema.py")
    assert ran.err == ""
    assert "1 entity, 1 event, 1 feature declared" in ran.out
    file.write_text(_SCHEMA.format(field="currency: str"))
    ran = run("check", "schema.py")
    assert ran.code == 0
    assert "schema.py:12: 3 of 3 examined events of the type 'purchase' do not fit" in ran.err
    assert "payload.currency does not fit Purchase" in ran.err
    assert "give a new field a default" in ran.err
    (warning,) = run("check", "schema.py", "--json").json["warnings"]
    assert ", such as e-" in warning


def test_event_types_are_listed_with_their_fields(run: Run, folder: Path) -> None:
    (folder / "schema.py").write_text(
        _SCHEMA.format(field='unit: Literal["EUR", "USD"] = "EUR"').replace(
            "from headwater", "from typing import Literal\nfrom headwater", 1
        )
    )
    listed = run("events", "types", "--file", "schema.py")
    assert 'amount: number, tags?: list[string] | null, unit?: "EUR" | "USD"' in listed.out
    assert "Something was bought." in listed.out
    purchase, visit = run("events", "types", "--file", "schema.py", "--json").json
    assert purchase["schema"]["required"] == ["amount"]
    assert (visit["name"], visit["schema"]) == ("visit", None)


_CLOCKS = """
from datetime import UTC, datetime
from headwater import FeatureStore, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, derived=True)
def is_evening(user_id: str) -> bool:
    return {now}.hour > 17
"""


def test_an_owner_that_no_declared_event_names_is_a_warning(run: Run, folder: Path) -> None:
    (folder / "tickets.py").write_text(
        """
from headwater import Event, FeatureStore, entity, event, feature

store = FeatureStore()


@entity(store)
class Customer:
    customer_id: str


@entity(store, belongs_to={"customr_id": Customer})
class Ticket:
    ticket_id: str


@event(store, "ticket_opened")
class TicketOpened:
    customer_id: str
    subject: str


@feature(entity=Ticket, trigger="ticket_opened")
def subject(ticket_id: str, event: Event[TicketOpened]) -> str:
    return event.payload.subject
"""
    )
    (warning,) = run("check", "tickets.py", "--json").json["warnings"]
    assert "Ticket belongs to Customer by 'customr_id', which no declared event" in warning
    assert "did you mean 'customer_id'?" in warning


def test_the_time_of_the_computer_in_a_function_that_computes_the_past_is_a_warning(
    run: Run, folder: Path
) -> None:
    file = folder / "evening.py"
    file.write_text(_CLOCKS.format(now="datetime.now(UTC)"))
    ran = run("check", "evening.py", "--json")
    assert ran.code == 0
    (warning,) = json.loads(ran.out)["warnings"]
    assert "evening.py:15: feature 'is_evening' uses datetime.now" in warning
    assert "use store.clock.now()" in warning
    assert f"warning: {warning}" in ran.err
    file.write_text(_CLOCKS.format(now="store.clock.now()"))
    assert run("check", "evening.py").err == ""


def test_chance_in_another_file_of_the_user_is_a_warning(run: Run, folder: Path) -> None:
    (folder / "hours.py").write_text(
        "import numpy as np\nRNG = np.random.default_rng(7)\n\n"
        "class Hours:\n    def pick(self):\n        return RNG.choice([1, 2])\n"
    )
    (folder / "evening.py").write_text(
        "from hours import Hours\n\nhours = Hours()\n\n"
        + _CLOCKS.format(now="hours.pick() and store.clock.now()")
    )
    ran = run("check", "evening.py")
    assert ran.code == 0
    assert "hours.py:6: feature 'is_evening' uses RNG.choice" in ran.err


_TEMPLATES = """
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="signup", default={default})
def nickname(user_id: str, event: ServiceEvent) -> str:
    return "Ada"


@feature(entity=User, template="dear {{nickname}}")
def salutation(user_id: str) -> str: ...


@context(store)
async def greeting(user_id: str) -> ContextItem:
    return ContextItem.template("Hello {{{shown}}}!")
"""


@pytest.mark.parametrize("shown", ["nickname", "salutation"])
def test_a_template_that_may_have_a_gap_is_a_warning(run: Run, folder: Path, shown: str) -> None:
    file = folder / "greeting.py"
    file.write_text(_TEMPLATES.format(default=None, shown=shown))
    ran = run("check", "greeting.py", "--json")
    assert ran.code == 0
    (warning,) = json.loads(ran.out)["warnings"]
    assert "greeting.py:21: a template of context 'greeting' shows 'nickname'" in warning
    assert "declare a default= for it" in warning
    file.write_text(_TEMPLATES.format(default="'you'", shown=shown))
    assert run("check", "greeting.py").err == ""


def test_a_format_that_does_not_fit_its_feature_is_a_warning(run: Run, folder: Path) -> None:
    file = folder / "greeting.py"
    file.write_text(_TEMPLATES.format(default="'you'", shown="nickname:.2f"))
    (warning,) = json.loads(run("check", "greeting.py", "--json").out)["warnings"]
    assert "greeting.py:21: context 'greeting': the format of {nickname:.2f}" in warning
    assert "which is str" in warning


def test_a_template_with_an_unknown_feature_is_a_warning(run: Run, folder: Path) -> None:
    text = _TEMPLATES.format(default="'you'", shown="nickname|you")
    (folder / "greeting.py").write_text(text.replace("{nickname|you}", "{nicknane|you}"))
    (warning,) = json.loads(run("check", "greeting.py", "--json").out)["warnings"]
    assert "greeting.py:21: context 'greeting': a template shows unknown feature" in warning
    assert "did you mean 'nickname'?" in warning


@pytest.mark.parametrize(
    ("written", "closed"),
    [
        ('"Hello {nickname}!"', '"Hello {nickname|you}!"'),
        ('"dear {{nickname}}"', '"dear {{nickname|you}}"'),
        ('{nickname}!")', '{nickname}!", when_missing="drop")'),
    ],
)
def test_a_fallback_or_an_item_that_is_left_out_closes_the_gap(
    run: Run, folder: Path, written: str, closed: str
) -> None:
    shown = "salutation" if "dear" in written else "nickname"
    text = _TEMPLATES.format(default=None, shown=shown)
    written, closed = written.replace("{{", "{").replace("}}", "}"), closed.replace("{{", "{")
    assert written in text
    (folder / "greeting.py").write_text(text.replace(written, closed.replace("}}", "}")))
    assert run("check", "greeting.py").err == ""


_WINDOWS = """
import random
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase", window=["1h", "1d"], aggregate=["sum", "max"])
def spend(user_id: str, event: ServiceEvent) -> float:
    return event.payload["amount"] * random.random()


@context(store)
async def brief(user_id: str) -> ContextItem:
    return ContextItem.template("{shown}")
"""


def test_windows_are_counted_apart_and_warned_about_once(run: Run, folder: Path) -> None:
    file = folder / "windows.py"
    file.write_text(_WINDOWS.replace("{shown}", "{spend_sum_1h}"))
    ran = run("check", "windows.py", "--json").json
    assert (ran["declared"]["features"], ran["declared"]["families"]) == (4, 1)
    (warning,) = ran["warnings"]
    assert "feature 'spend' uses random" in warning
    assert "4 features, 1 family of windows" in run("check", "windows.py").out


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("{spend_max_1h}", "shows 'spend_max_1h', which may have no value"),
        ("{spend}", "'spend' is a family of windows; name one of spend_sum_1h"),
    ],
)
def test_a_template_of_an_empty_window_or_of_a_family_is_a_warning(
    run: Run, folder: Path, shown: str, problem: str
) -> None:
    (folder / "windows.py").write_text(_WINDOWS.replace("{shown}", shown))
    assert any(
        problem in warning for warning in run("check", "windows.py", "--json").json["warnings"]
    )


def test_the_windows_of_an_entity_are_a_small_table(run: Run, folder: Path) -> None:
    source = _WINDOWS.replace("{shown}", "{spend_sum_1h}").replace(" * random.random()", "")
    (folder / "features.py").write_text(source)
    run("events", "publish", "purchase", "ada", "amount=12.5")
    drain(folder)
    heading, hour, day, *_ = run("features", "windows", "spend", "ada").out.splitlines()
    assert heading.split() == ["WINDOW", "SUM", "MAX"]
    assert hour.split() == ["1h", "12.5", "12.5"]
    assert day.split() == ["1d", "12.5", "12.5"]
    listed = run("features", "windows", "spend_sum_1h", "ada", "--json").json
    assert [tile["values"] for tile in listed["levels"][0]["tiles"]] == [{"sum": 12.5, "max": 12.5}]
    empty = run("features", "get", "spend_max_1h", "bob")
    assert "bob: nothing contributed to spend in the last 1h" in empty.err
    refused = run("features", "get", "spend", "ada")
    assert "read one of spend_sum_1h" in refused.err
    assert "on purchase; 4 windows" in run("features", "list").out
    rows = run("features", "list", "--windows").out
    assert "from spend, when read; covers between 1h and 1h 1m" in rows
