"""`headwater init` and `headwater check`: from an empty folder to a tested project."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

BAD_REFERENCE = """
from headwater import FeatureStore, entity, feature
store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, template="{total_spent}")
def blurb(user_id: str) -> str: ...
"""
BAD_QUERY = BAD_REFERENCE.replace('template="{total_spent}"', 'refresh="1h", sql="SELEC 1"')


def test_the_test_of_a_new_project_passes(run: Run, folder: Path) -> None:
    ran = run("init", "shop")
    assert ran.code == 0
    assert "cd shop" in ran.out
    assert "pip install pytest" in ran.out
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder / "shop",
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


def test_a_new_project_has_no_problem(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "features.py").unlink()
    run("init")
    ran = run("check")
    assert ran.code == 0
    assert "features.py: 2 entities, 3 features, 1 index, 1 retriever, 1 context" in ran.out
    assert run("check", "--json").json["declared"]["features"] == 3
    assert not (folder / ".headwater").exists()


def test_existing_files_are_not_replaced(run: Run, folder: Path) -> None:
    before = (folder / "features.py").read_text()
    ran = run("init")
    assert ran.code == 1
    assert "features.py exists already" in ran.err
    assert (folder / "features.py").read_text() == before
    assert not (folder / "headwater.toml").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [(BAD_REFERENCE, "total_spent"), (BAD_QUERY, "SELEC"), ("store = 1", "FeatureStore")],
)
def test_check_names_the_first_problem(run: Run, folder: Path, text: str, problem: str) -> None:
    (folder / "bad.py").write_text(text)
    ran = run("check", "bad.py")
    assert ran.code == 1
    assert problem in ran.err
    assert "bad.py" in ran.err
