"""The contexts of the README and of the demo stay fresh for a customer who is quiet for a day."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import pytest

from headwater import Context, FeatureStore
from headwater.store.loader import load_store
from headwater.testing import ManualClock, temporary
from tests.docs.pages import ROOT, blocks


async def _quiet_for_a_day(store: FeatureStore) -> list[Context]:
    """Return the contexts of a customer with events a day ago, and of one without events."""
    clock = ManualClock()
    async with temporary(store, clock=clock):
        await store.publish("purchase", "ada", {"amount": 40})
        await store.drain()
        clock.advance("1d")
        await store.drain()
        ask = {"question": "Where is my parcel?"}
        return [await store.assemble("support", {"user_id": who, **ask}) for who in ("ada", "bob")]


async def test_the_context_of_the_readme_stays_guaranteed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    (block,) = [each for each in blocks(ROOT / "README.md") if each.title == "features.py"]
    file = tmp_path / "readme_features.py"
    file.write_text(block.text)
    ada, bob = await _quiet_for_a_day(load_store(file))
    assert "Ada has spent 40.0" in ada.content
    assert "Bob has spent 0.0" in bob.content
    assert (ada.freshness_status, bob.freshness_status) == ("guaranteed", "guaranteed")


async def test_the_context_of_the_demo_stays_guaranteed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    with as_file(files("headwater.cli.demo") / "example" / "features.py") as file:
        ada, bob = await _quiet_for_a_day(load_store(file))
    assert "silver customer: 40.0 spent" in ada.content
    assert "silver customer: 0.0 spent" in bob.content
    assert (ada.freshness_status, bob.freshness_status) == ("guaranteed", "guaranteed")
