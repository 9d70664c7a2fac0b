"""Features files of the documentation pass ``mypy --strict`` and pyright, with typed handles."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ui_build

_ROOT = Path(__file__).parents[2]
_TYPED = """
from typing import assert_type

from headwater import Chunk
from readme import User, blurb, purchases, search_help, store, total_spend

open_tickets = store.stored_feature("open_tickets", int, entity=User, default=0)
past_orders = store.sql_feature(
    "past_orders", int, entity=User, refresh="1h", sql="SELECT user_id, 1 AS value FROM orders"
)


async def use() -> None:
    assert_type(await store.get_feature(total_spend, "ada"), float | None)
    assert_type(store.sync.get_feature(total_spend, "ada"), float | None)
    assert_type(await store.get_feature(blurb, "ada"), str | None)
    assert_type(await store.get_feature(purchases["count", "1h"], "ada"), int | None)
    assert_type(await open_tickets.get("ada"), int | None)
    assert_type(await past_orders.get("ada"), int | None)
    assert_type(await search_help("parcels"), list[Chunk])
"""


def _pyright() -> list[str]:
    node = ui_build.install()
    script = ui_build.MODULES / "pyright" / "index.js"
    return [str(node.executable), str(script), "--pythonpath", sys.executable]


@pytest.fixture
def typed_files(tmp_path: Path) -> Path:
    """A folder with the features file of the README, that of the tour, and uses of handles."""
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r'```python title="features.py"\n(.*?)```', readme, re.DOTALL)
    assert found is not None
    (tmp_path / "readme.py").write_text(found[1], encoding="utf-8")
    tour = (_ROOT / "examples" / "tour" / "features.py").read_text(encoding="utf-8")
    (tmp_path / "tour.py").write_text(tour, encoding="utf-8")
    (tmp_path / "typed.py").write_text(_TYPED, encoding="utf-8")
    return tmp_path


def test_the_tours_file_passes_mypy_strict(typed_files: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "readme.py", "tour.py", "typed.py"]
    checked = subprocess.run(command, cwd=typed_files, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_tours_file_passes_pyright(typed_files: Path) -> None:
    command = [*_pyright(), "readme.py", "tour.py", "typed.py"]
    checked = subprocess.run(command, cwd=typed_files, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
