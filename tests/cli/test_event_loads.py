"""`headwater events load`: files of past events, with resumption, rates and rejected rows."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.conftest import FEATURES_WITH_RARE_TICKS, Run, Start, wait_until

ROWS = 5_000


def _csv(count: int) -> str:
    rows = (f"u{n % 50},2025-03-01T12:{n // 60 % 60:02}:{n % 60:02}Z,{n}" for n in range(count))
    return "\n".join(["user,at,amount", *rows])


COLUMNS = ("--type", "purchase", "--entity-id", "user", "--timestamp", "at")


def _amounts(run: Run) -> list[int]:
    events = run("events", "list", "--event-type", "purchase", "--limit", "10000", "--json").json
    return sorted(event["payload"]["amount"] for event in events)


def test_past_events_of_a_file_are_loaded_and_handled(run: Run, folder: Path) -> None:
    (folder / "past.csv").write_text(_csv(20))

    first = run("events", "load", "past.csv", *COLUMNS)
    again = run("events", "load", "past.csv", *COLUMNS, "--json")

    assert first.out == (
        "FILE      ROWS  PUBLISHED  LOADED BEFORE  ERASED  REJECTED\n"
        "past.csv  20    20         0              0       0\n"
    )
    (report,) = again.json
    assert (report["published"], report["loaded_before"]) == (0, 20)
    assert _amounts(run) == list(range(20))


def test_json_lines_are_loaded_from_stdin(run: Run, home: Path) -> None:
    line = '{"event_type": "purchase", "entity_id": "u1", "timestamp": "2025-03-01T12:00:00Z"}\n'

    assert run("events", "load", "-", "--json", stdin=line * 3).json[0]["published"] == 3
    assert run("events", "load", "-", "--json", stdin=line * 4).json[0]["published"] == 1


def test_a_server_loads_a_file_that_the_client_reads(remote: Run, folder: Path) -> None:
    (folder / "past.csv").write_text(_csv(20))

    loads = [remote("events", "load", "past.csv", *COLUMNS, "--json").json[0] for _ in range(2)]

    assert [load["published"] for load in loads] == [20, 0]


def test_bad_rows_stop_the_command_or_are_written_to_a_file(run: Run, folder: Path) -> None:
    (folder / "past.csv").write_text(_csv(20) + "\nu1,yesterday,7")

    stopped = run("events", "load", "past.csv", *COLUMNS)
    skipped = run("events", "load", "past.csv", *COLUMNS, "--skip-bad")

    assert stopped.code == 1
    assert "past.csv:22: 'yesterday' is not a time" in stopped.err
    assert "name their column with --timestamp" in stopped.err
    assert skipped.err.endswith("Rejected rows: past.csv.rejects.jsonl\n")
    assert '"row":21' in (folder / "past.csv.rejects.jsonl").read_text()
    assert _amounts(run) == list(range(20))


@pytest.mark.parametrize("rate", ["fast", "5/d", "0/s", "inf"])
def test_a_rate_is_a_number_for_a_second_a_minute_or_an_hour(
    run: Run, folder: Path, rate: str
) -> None:
    refused = run("events", "load", "past.csv", "--rate", rate)

    assert refused.code == 2
    assert "write one such as 5000/s or 300/m" in " ".join(refused.err.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_load_continues_after_a_signal(
    run: Run, start: Start, folder: Path, number: signal.Signals
) -> None:
    """Rows that are in the log are not published again, and none is left out."""
    (folder / "features.py").write_text(FEATURES_WITH_RARE_TICKS)
    (folder / "past.csv").write_text(_csv(ROWS))
    load = ("events", "load", "past.csv", *COLUMNS)
    process = start(*load, "--rate", "400/s")
    count = ("events", "list", "--event-type", "purchase", "--json")
    wait_until(lambda: len(run(*count, "--limit", "500").out) > 50_000)

    ended = process.end(number)

    if number is signal.SIGINT:
        assert ended.code == 130
        assert "are loaded. Run the command again to continue." in ended.err
    (again,) = run(*load, "--json").json
    assert again["rows"] == ROWS
    assert 0 < again["loaded_before"] < ROWS
    assert _amounts(run) == list(range(ROWS))
