"""Commands without a store: commands that read fail, commands that write create one."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start

READING = [
    ["features", "get", "shout", "u1"],
    ["context", "list"],
    ["context", "find", "--feature", "shout"],
    ["context", "show", "01a1de13-6731"],
    ["context", "verify", "01a1de13-6731"],
    ["context", "redact", "01a1de13-6731", "/inputs/question", "--reason", "asked", "--yes"],
    ["dlq", "list"],
    ["dlq", "show", "1"],
    ["dlq", "redrive", "1"],
    ["dlq", "discard", "1"],
    ["lag"],
    ["rebuild"],
    ["audit"],
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_reads_creates_no_store(
    folder: Path, run: Run, arguments: list[str]
) -> None:
    refused = run(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: the store in {folder / '.headwater'} does not exist; ")
    assert "set HEADWATER_HOME" in refused.err
    assert not (folder / ".headwater").exists()


def test_the_home_of_a_features_file_is_used(folder: Path, run: Run) -> None:
    elsewhere = folder / "elsewhere"
    declared = (folder / "features.py").read_text()
    named = declared.replace("FeatureStore()", f"FeatureStore(home={str(elsewhere)!r})")
    (folder / "features.py").write_text(named)
    assert f"the store in {elsewhere} does not exist" in run("lag", "features.py").err
    run("events", "publish", "visit", "u1", "--file", "features.py")
    assert run("lag", "features.py", "--json").json["waiting"] == 1


def test_a_store_next_to_the_features_file_is_named(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("events", "publish", "visit", "u1")
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    refused = run("features", "get", "visits", "u1", "--file", "../features.py")
    assert "set HEADWATER_HOME=../.headwater or " in refused.err
    monkeypatch.setenv("HEADWATER_HOME", "../.headwater")
    assert run("features", "get", "visits", "u1", "--file", "../features.py").code == 0


def test_a_home_that_cannot_be_read_is_not_reported_as_missing(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    (folder / "closed").write_text("no folder")
    monkeypatch.setenv("HEADWATER_HOME", str(folder / "closed" / "home"))
    monkeypatch.setattr(Path, "exists", denied)
    refused = run("lag")
    assert refused.code == 1
    assert refused.err.startswith("error: the store in ")
    assert "does not exist" not in refused.err


def test_a_command_that_writes_creates_the_store_and_says_so(
    folder: Path, run: Run, start: Start
) -> None:
    made = run("events", "publish", "visit", "u1")
    assert (made.code, made.err) == (0, f"Created a new store in {folder / '.headwater'}.\n")
    assert run("events", "publish", "visit", "u1").err == ""
    assert run("dlq", "list").out == "No dead letters.\n"
    for verb in (("serve", "--port", "0"), ("worker",)):
        home = folder / verb[0]
        process = start(*verb, HEADWATER_HOME=str(home))
        process.next_line()
        ended = process.end()
        assert ended.code == 0
        assert f"Created a new store in {home}.\n" in ended.err
        assert home.is_dir()


def test_a_features_file_in_another_folder_uses_the_store_of_this_folder(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    made = run("events", "publish", "visit", "u1", "-f", "../features.py")
    assert made.err == f"Created a new store in {here / '.headwater'}.\n"
    assert "the settings of the working directory" in " ".join(
        run("events", "publish", "--help").out.split()
    )


def test_publishing_in_a_folder_without_store_features_or_settings_is_refused(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    refused = run("events", "publish", "visit", "u1")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: the store in {elsewhere / '.headwater'} does not exist")
    assert "`headwater serve FILE` creates a new one" in refused.err
    assert not (elsewhere / ".headwater").exists()
    (elsewhere / "headwater.toml").write_text("partitions = 4\n")
    assert run("events", "publish", "visit", "u1").code == 0
