"""`headwater doctor`: its output and exit status."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_a_new_folder_has_no_problem(run: Run, folder: Path) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert "Configuration\n" in ran.out
    assert "all values are defaults" in ran.out
    assert "0 error" in ran.out
    assert not (folder / ".headwater").exists()


def test_warnings_and_errors_have_exit_codes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_EMBEDDINGS_PROVIDER", "lexical")
    ran = run("doctor", "--json")
    assert ran.code == 1
    assert ran.json["status"] == "warning"
    monkeypatch.setenv("HEADWATER_ENV", "production")
    ran = run("doctor")
    assert ran.code == 2
    assert "→ set HEADWATER_API_KEY" in ran.out
