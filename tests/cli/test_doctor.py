"""`headwater doctor`: its output and exit status."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start


def test_a_new_folder_has_no_problem(run: Run, folder: Path) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert ran.out.startswith("Configuration")
    assert "all values are defaults" in ran.out
    assert f"no headwater.toml in {folder}" in ran.out
    assert "0 error" in ran.out
    assert not (folder / ".headwater").exists()


def test_prices_are_shown_in_dollars(run: Run, folder: Path) -> None:
    (folder / "headwater.toml").write_text("[prices]\ngpt-4o = 2500000000\nsmall = 150000000\n")
    assert "gpt-4o 2.5 USD, small 0.15 USD per million input tokens" in run("doctor").out


def test_a_missing_features_file_is_named(run: Run, folder: Path) -> None:
    (folder / "features.py").unlink()
    ran = run("doctor")
    assert ran.code == 0
    assert f"there is no features.py in {folder}" in ran.out


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


def test_a_server_that_does_not_answer_is_an_error_in_the_report(run: Run) -> None:
    ran = run("doctor", "--json", "--url", "http://127.0.0.1:9")
    assert (ran.code, ran.json["status"]) == (2, "error")
    (finding,) = ran.json["findings"]
    assert (finding["area"], finding["looked_at"]) == ("server", "http://127.0.0.1:9")
    assert "no response" in finding["found"]


def test_an_invalid_setting_is_an_error_in_the_report(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_HTTP_PORT", "abc")
    ran = run("doctor")
    assert ran.code == 2
    assert "HEADWATER_HTTP_PORT: 'abc' is not allowed" in ran.out
    assert run("doctor", "--json").json["findings"][0]["area"] == "configuration"


def test_lines_that_are_not_for_a_terminal_are_not_wrapped(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder / ("long-" * 30)
    home.mkdir(mode=0o755)
    monkeypatch.setenv("HEADWATER_HOME", str(home))
    assert f"chmod 700 {home}\n" in run("doctor").out
