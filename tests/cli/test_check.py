"""`headwater check`: warnings about code that is allowed, but probably wrong."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

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
    return ContextItem.template("Hello {{{shown}}}, {{unknown}}")
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


@pytest.mark.parametrize(
    ("written", "closed"),
    [
        ('"Hello {nickname}, {unknown}"', '"Hello {nickname|you}, {unknown}"'),
        ('"dear {{nickname}}"', '"dear {{nickname|you}}"'),
        ('{unknown}")', '{unknown}", when_missing="drop")'),
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
