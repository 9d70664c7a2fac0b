"""Logs: through Python's logging as a library, to standard error from the command line."""

from __future__ import annotations

import ast
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.cli.commands import bare_store, run
from headwater.core.logging import Log, LogRecord, log

SOURCE = Path(__file__).parents[2] / "src"
RESERVED = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

DRAINS = """
import asyncio
from headwater import FeatureStore
from headwater.testing import temporary
store = FeatureStore()
@store.entity
class User:
    user_id: str
@store.feature(User, trigger="buy", max_retries=0)
def half(user_id: str, event: object) -> int:
    return 10 // event.payload["by"]
async def main(*numbers: int) -> None:
    async with temporary(store):
        for number in numbers:
            await store.publish("buy", "ada", {"by": number})
            await store.drain()
"""

ADVISED = """
from headwater.core.logging import log
log.advise("no model", remedy="install it")
"""


class Processed(LogRecord, frozen=True):
    entity_id: str


async def fail_once(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("broken")

    await store.publish("buy", "ada")
    await store.drain()


async def test_a_library_logs_through_logging_with_fields_as_attributes(
    store: FeatureStore,
    user: type,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    log.use_logging()
    with caplog.at_level("INFO", logger="headwater"):
        await fail_once(store, user)
    by_event = {vars(record)["event"]: record for record in caplog.records}
    failed = by_event["event failed"]
    assert (failed.name, failed.levelname) == ("headwater", "INFO")
    assert vars(failed)["entity_id"] == "ada"
    assert failed.getMessage().startswith("event failed ")
    assert "entity_id=ada" in failed.getMessage()
    started = by_event["worker started"]
    assert Path(started.pathname).name == "worker.py"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("numbers", "warned"), [("2", 0), ("2, 0, 0", 1)])
def test_a_library_writes_nothing_but_one_warning_of_a_handler_that_fails(
    numbers: str, warned: int
) -> None:
    script = f"{DRAINS}asyncio.run(main({numbers}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(done.stderr.splitlines()) == warned
    assert done.stderr.count("feature 'half' failed: ZeroDivisionError: ") == warned


def test_a_script_without_logging_shows_advice_about_the_configuration() -> None:
    logged = subprocess.run([sys.executable, "-c", ADVISED], capture_output=True, text=True)
    assert logged.stderr == "headwater:1: UserWarning: no model; remedy: install it\n"
    script = f"import logging; logging.basicConfig()\n{ADVISED}"
    logged = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert logged.stderr == "WARNING:headwater:no model remedy=install it\n"


def test_records_are_not_created_for_a_level_that_is_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Log()
    created: list[str] = []

    def records() -> Iterator[LogRecord]:
        created.append("record")
        yield Processed("2026-01-01T00:00:00+00:00", "info", "event processed", "ada")

    with caplog.at_level("WARNING", logger="headwater"):
        own.info_each(records())
    assert created == []
    with caplog.at_level("INFO", logger="headwater"):
        own.info_each(records())
    (record,) = caplog.records
    assert vars(record)["entity_id"] == "ada"
    assert record.getMessage() == "event processed entity_id=ada"


def test_the_command_line_logs_at_the_level_of_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_LOG_FORMAT", "json")
    for level, expected in (("error", set()), ("info", {"worker started", "worker stopped"})):
        monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / level))
        monkeypatch.setenv("HEADWATER_LOG_LEVEL", level)
        run(bare_store(None), FeatureStore.drain, create=True)
        log.flush()
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
        assert {json.loads(line)["event"] for line in lines} >= expected
        assert bool(lines) == bool(expected)


def test_no_field_has_the_name_of_an_attribute_of_a_log_record() -> None:
    methods = {"debug", "info", "warning", "advise", "error", "report"}
    names = {
        keyword.arg
        for file in SOURCE.rglob("*.py")
        if any(f".{method}(" in file.read_text(encoding="utf-8") for method in methods)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        for keyword in node.keywords
    }
    assert "error" in names
    assert not names & RESERVED


def test_records_for_people_escape_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    hostile = "ada\n12:00:00 error forged\x1b[2J\x9b1A\u202eé"
    escaped = r"entity_id=ada\n12:00:00 error forged\x1b[2J\x9b1A\u202eé"
    stream, own = io.StringIO(), Log()
    own.configure("info", "console", stream)
    own.info("event failed", entity_id=hostile)
    own.flush()
    assert stream.getvalue().endswith(f" event failed {escaped}\n")
    own.use_logging()
    with caplog.at_level("INFO", logger="headwater"):
        own.info("event failed", entity_id=hostile)
    (record,) = caplog.records
    assert record.getMessage() == f"event failed {escaped}"


def test_a_record_of_a_rare_event_is_written_at_once() -> None:
    stream, own = io.StringIO(), Log()
    own.configure("info", "json", stream)
    own.info("worker waits: others declare more features", worker="w1")
    assert json.loads(stream.getvalue())["worker"] == "w1"
