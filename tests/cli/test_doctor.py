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


def test_the_least_rights_on_both_servers_are_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "needs no rights on servers" in run("doctor", "grants", "--print").err
    monkeypatch.setenv("HEADWATER_REDIS_URL", "redis+sentinel://me@one,two,three/shop?db=2")
    monkeypatch.setenv("HEADWATER_POSTGRES_URL", "postgresql://app@db/shop")
    monkeypatch.setenv("HEADWATER_POSTGRES_SCHEMA", "features")
    ran = run("doctor", "grants", "--print")
    assert ran.code == 0
    for told in (
        "ACL SETUSER me on >PASSWORD resetkeys resetchannels -@all +client|setname ",
        " +select ~headwater:* ~{headwater:* &headwater:*\n",
        "+sentinel|get-master-addr-by-name +sentinel|master &+switch-master\n",
        'CREATE SCHEMA "features" AUTHORIZATION "app_owner";',
        'GRANT CONNECT, TEMPORARY ON DATABASE "shop" TO "app";',
    ):
        assert told in ran.out
    assert run("doctor", "grants", "--print", "--json").json["grants"] in ran.out


@pytest.mark.parametrize("words", [("doctor",), ("doctor", "grants", "--print")])
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:pa[sekret@127.0.0.1:1/db",
        "postgresql://u:pa/sekret@127.0.0.1:1/db",
        "postgresql://u:12/sekret@127.0.0.1:1/db",
        "postgresql://u:pa#sekret@127.0.0.1:1/db",
        "postgresql://u:pa@127.0.0.1:sekret/db",
        "u:sekret@h",
    ],
)
def test_an_address_that_cannot_be_read_is_an_error_without_its_password(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HEADWATER_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("HEADWATER_POSTGRES_URL", url)
    ran = run(*words)
    assert ran.code != 0
    assert "HEADWATER_POSTGRES_URL has an invalid host or port" in ran.out + ran.err
    assert "sekret" not in ran.out + ran.err


@pytest.mark.parametrize("words", [["grants"], ["--print"], ["rights", "--print"]])
def test_other_words_after_it_are_refused(run: Run, words: list[str]) -> None:
    ran = run("doctor", *words)
    assert ran.code == 2
    assert "headwater doctor grants --print" in ran.err
