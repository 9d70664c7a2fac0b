"""A folder with the features of a support desk."""

from pathlib import Path

import pytest

from headwater.model.lineage import Context
from tests.cli.context.desk import DESK, assemble


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "features.py").write_text(DESK)
    return folder


@pytest.fixture
def made(folder: Path) -> Context:
    """A context that is recorded in the folder's store."""
    return assemble(folder, interaction_ref={"call_id": "c1"})
