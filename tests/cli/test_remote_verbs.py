"""Every command works with `--url`, or says why it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from headwater.cli import VERBS, command_of
from headwater.cli.commands import LOCAL_ONLY
from tests.cli.conftest import Run

URL = "http://127.0.0.1:1"
"""A server that does not exist: a command that calls it says so."""

ARGUMENTS = {
    "audit": "",
    "audit-log": "",
    "backfill cancel": "total_spend --yes",
    "backfill compare": "total_spend",
    "backfill run": "total_spend",
    "backfill status": "total_spend",
    "backfill switch": "total_spend",
    "context assemble": "support user_id=1",
    "context declared": "",
    "context diff": "01a1de13 01a1de14",
    "context export": "01a1de13",
    "context export-outcomes": "01a1de13",
    "context find": "--entity-id 7",
    "context import-outcomes": "scores.csv --format csv",
    "context list": "",
    "context outcome": "01a1de13 --score helpful=4",
    "context outcomes": "01a1de13",
    "context redact": "01a1de13 /inputs/question --reason asked --yes",
    "context redact-outcome": (
        "01a1de13-6731-767b-b9ee-76ce545fa0ef /score/label --reason asked --yes"
    ),
    "context replay": "01a1de13",
    "context show": "01a1de13",
    "context verify": "01a1de13",
    "dlq discard": "17",
    "dlq list": "",
    "dlq redrive": "17",
    "dlq show": "17",
    "docs": "",
    "doctor": "",
    "events list": "",
    "events load": "past.jsonl",
    "events publish": "purchase ada amount=1",
    "events show": "order-17",
    "events types": "",
    "features drop": "total_spend --yes",
    "features get": "total_spend ada",
    "features history": "total_spend ada",
    "features list": "",
    "features show": "total_spend",
    "features rename": "total_spend spend",
    "features versions": "total_spend",
    "features windows": "spend ada",
    "forget": "User ada --reason asked --yes",
    "graph": "",
    "groups drop": "workers --yes",
    "groups list": "",
    "history export": "exported",
    "history import": "table.csv -f total_spend",
    "history read": "table.csv -f total_spend",
    "index build": "docs page.md",
    "index delete": "docs parcels",
    "index drop": "docs --yes",
    "index list": "docs",
    "index reindex": "docs",
    "index search": "docs parcels",
    "index show": "docs parcels",
    "index status": "",
    "lag": "",
    "lake compact": "",
    "lake expire": "--older-than 30d --yes",
    "lake init": "",
    "lake status": "",
    "mentions": "User ada",
    "prune": "--events 30d --yes",
    "rebuild": "",
    "refresh": "orders",
    "sources list": "",
    "sources load": "orders",
}
"""Arguments with which each command calls a server."""
# It opens the page of the server, which the browser calls.
OPENS = {"ui"}


def _commands(command: Any, path: str) -> Iterator[str]:
    """Yield the paths of all commands below one."""
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            yield from _commands(each, f"{path} {name}")
    else:
        yield path


def _all_commands() -> list[str]:
    found: list[str] = []
    for name in VERBS:
        found += _commands(command_of(name), name)
    return found


@pytest.fixture
def once(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands that try once to reach a server, in a folder without a features file."""
    (folder / "features.py").unlink()
    (folder / "page.md").write_text("Parcels take two days.")
    (folder / "past.jsonl").write_text('{"event_type":"purchase","entity_id":"ada"}\n')
    (folder / "scores.csv").write_text("context_id,score,value\n01a1de13,helpful,4\n")
    (folder / "table.csv").write_text("user_id,timestamp,total_spend\nada,2026-05-01T00:00:00Z,1\n")
    monkeypatch.setenv("HEADWATER_CLIENT_RETRIES", "0")
    return run


def test_every_command_calls_a_server_or_is_named_with_a_reason() -> None:
    commands = set(_all_commands())
    local = {each for each in commands if {each, each.split()[0]} & LOCAL_ONLY.keys()}
    assert commands - local == ARGUMENTS.keys() | OPENS
    assert {each.split()[0] for each in local} == {each.split()[0] for each in LOCAL_ONLY}


def test_every_command_names_the_server_that_does_not_answer(once: Run, folder: Path) -> None:
    for command, arguments in ARGUMENTS.items():
        ran = once(*command.split(), *arguments.split(), "--url", URL)
        # The doctor reports it as a finding.
        code, text = (2, ran.out) if command == "doctor" else (1, ran.err)
        assert ran.code == code, f"{command}: {ran.err}"
        assert f"no response from {URL}" in text, f"{command}: {text}"
        assert "headwater serve" in text, command
    assert not (folder / ".headwater").exists()


def test_an_export_is_read_from_files_and_not_from_a_server(once: Run) -> None:
    ran = once("history", "table.csv", "-f", "total_spend", "--exported", "out", "--url", URL)
    assert ran.code == 2
    assert "leave out --exported" in ran.err
