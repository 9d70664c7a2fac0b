"""`headwater doctor`: its output and exit status."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start


def test_a_new_folder_has_no_problem(run: Run, folder: Path) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert ran.out.startswith("Configuration")
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
    assert "→ create a key with `headwater keys create NAME --scope admin`" in " ".join(
        ran.out.split()
    )


def test_a_server_examines_itself(run: Run, start: Start) -> None:
    server = start("serve", "features.py", "--json", "--port", "0")
    ran = run("doctor", "--json", "--url", server.next_line()["url"])
    found = {(each["area"], each["check"]): each for each in ran.json["findings"]}
    assert found["workload", "circuit breakers"]["found"] == "all closed"
