"""`make lint` refuses a package that has grown past its budget of lines."""

import tomllib
from collections import Counter
from pathlib import Path

from dev.size import DATA, SOURCE, sizes, violations


def test_lines_are_counted_for_each_package_and_the_root(tmp_path: Path) -> None:
    for name, text in {"a.py": "1\n", "cli/b.py": "1\n2\n", "cli/demo/c.py": "3\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sizes(tmp_path) == {"root": 1, "cli": 3}


def test_a_package_larger_than_its_budget_is_refused() -> None:
    budgets = {"cli": 10, "core": 10}
    assert violations(Counter(cli=10, core=9), budgets) == []
    (grown,) = violations(Counter(cli=12, core=10), budgets)
    assert grown.startswith("cli has 12 lines and a budget of 10: take away 2, or raise")


def test_a_package_without_a_budget_is_refused() -> None:
    assert violations(Counter(new=1), {"cli": 10}) == ["new has 1 lines and no budget"]


def test_every_package_has_a_budget_and_a_goal() -> None:
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    assert data["budget"].keys() == data["goal"].keys() >= sizes(SOURCE).keys()
    assert sum(data["goal"].values()) <= 70_500
