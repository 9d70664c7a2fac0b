"""The notebook runs in a real kernel, and its cells show what they say: `pytest` in this folder."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run all cells in an empty folder; return what they show, in order."""
    notebook = nbformat.read(Path(__file__).with_name("tour.ipynb"), as_version=4)
    folder = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    NotebookClient(notebook, timeout=100, resources=folder).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [shown.get("data", shown) for cell in code for shown in cell.outputs]


def test_a_feature_is_shown_with_its_description(outputs: list[dict[str, Any]]) -> None:
    assert "All that a customer has spent." in outputs[0]["text/html"]


def test_values_history_and_training_set_are_frames(outputs: list[dict[str, Any]]) -> None:
    values, history, training = outputs[1:4]
    assert values["text/plain"].splitlines()[1].split() == ["0", "ada", "70.0"]
    assert [line.split()[1] for line in history["text/plain"].splitlines()[1:]] == [
        *("70.0", "65.0", "40.0"),
    ]
    assert "<table" in training["text/html"]


def test_a_context_is_shown_with_its_messages_and_what_was_dropped(
    outputs: list[dict[str, Any]],
) -> None:
    shown = outputs[4]["text/html"]
    assert "Spent so far: 70.00 EUR." in shown
    assert "of 60" in shown
    assert "over_budget" in shown


def test_the_record_is_verified(outputs: list[dict[str, Any]]) -> None:
    assert outputs[5]["text"] == "degraded ['stale']\nTrue\n"


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = nbformat.read(Path(__file__).with_name("tour.ipynb"), as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
