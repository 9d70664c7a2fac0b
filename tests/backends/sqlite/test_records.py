"""Records in SQLite: found by an index, erased completely, and durable after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.backends.connect import connect
from headwater.backends.sqlite import writer
from headwater.backends.sqlite.records import SqliteRecordLog
from headwater.core.clock import SystemClock
from headwater.ports import OutcomeFilter, RecordQuery
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import Embedded, embedded
from tests.stored import START, record

ROOT = Path(__file__).parents[3]

KILLED = """
import asyncio, os, signal
from headwater.core.clock import SystemClock
from headwater.backends.connect import connect
from headwater.settings.schema import Settings
from tests.stored import record

async def main() -> None:
    backends = await connect(Settings().replace(home={home!r}), SystemClock())
    records = [record(b"%d" % number) for number in range(50)]
    await asyncio.gather(*(backends.records.append(each, [b"key"]) for each in records))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

WITHOUT_DUCKDB = """
import asyncio, sys
from datetime import timedelta
from headwater.core.clock import SystemClock
from headwater.backends.connect import connect
from headwater.ports import Cached
from headwater.settings.schema import Settings
from tests.stored import record

async def main() -> None:
    backends = await connect(Settings().replace(home={home!r}), SystemClock())
    kept = record()
    await backends.records.append(kept, [b"key"])
    assert await backends.records.get(kept.context_id) == kept
    await backends.cache.put("a", Cached(b"", 0), timedelta(seconds=1))
    await backends.offline.maintain()
    await backends.lifecycle.close()

asyncio.run(main())
print("duckdb" in sys.modules)
"""


def run(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script.format(home=str(home))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", 1_000) as opened:
        yield opened


@pytest.fixture
def log(parts: Embedded) -> SqliteRecordLog:
    return SqliteRecordLog(parts.home, parts.writer, parts.erasures)


async def test_a_record_whose_append_returned_survives_the_death_of_its_process(
    tmp_path: Path,
) -> None:
    assert run(KILLED, tmp_path).returncode == -signal.SIGKILL
    backends = await connect(Settings().replace(home=tmp_path), SystemClock())
    assert len(await backends.records.records(RecordQuery())) == 50
    assert len(await backends.records.find(b"key")) == 50
    await backends.lifecycle.close()


def test_neither_records_nor_the_cache_load_duckdb(tmp_path: Path) -> None:
    result = run(WITHOUT_DUCKDB, tmp_path)
    assert (result.stdout, result.stderr) == ("False\n", "")


async def test_redacted_values_are_in_no_file(tmp_path: Path) -> None:
    secrets = [b"4111-1111-1111-1111", b"large 4111-1111-1111-1111" * 2_000]
    with embedded(tmp_path / "home", 1_000) as parts:
        log = SqliteRecordLog(parts.home, parts.writer, parts.erasures)
        for secret in secrets:
            kept = record(disclosures=secret)
            await log.append(kept, [])
            await log.append(record(), [])
            assert await log.redact(
                kept.context_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
            )
    content = b"".join(file.read_bytes() for file in (tmp_path / "home").glob("headwater.db*"))
    assert b"note" in content
    assert b"4111-1111" not in content


def files_with(home: Path, text: bytes) -> set[str]:
    """Return the files of the database that contain a text."""
    return {file.name for file in home.glob("headwater.db*") if text in file.read_bytes()}


async def test_redacted_values_are_in_no_file_while_the_store_is_open(
    parts: Embedded, log: SqliteRecordLog
) -> None:
    for secret in (b"4111-1111", b"large 4111-1111" * 2_000):
        kept = record(disclosures=secret)
        await log.append(kept, [])
        assert files_with(parts.home.path, b"4111-1111")
        assert await log.redact(
            kept.context_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
        )
        assert files_with(parts.home.path, b"4111-1111") == set()
        assert files_with(parts.home.path, b"[note]") == {"headwater.db"}


async def test_a_value_redacted_during_a_read_is_erased_later_with_a_warning(
    parts: Embedded,
    log: SqliteRecordLog,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(writer, "_ERASE_SECONDS", 0.1)
    kept = record(disclosures=b"4111-1111")
    await log.append(kept, [])
    with closing(parts.home.connect()) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()
        assert await log.redact(
            kept.context_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
        )
        assert "still in the WAL" in capsys.readouterr().err
        assert "headwater.db-wal" in files_with(parts.home.path, b"4111-1111")
    for _ in range(writer._COMMITS_PER_CHECKPOINT):  # noqa: SLF001
        await log.append(record(), [])
    assert files_with(parts.home.path, b"4111-1111") == set()
    assert capsys.readouterr().err == ""


PLANS: dict[str, dict[str, Any]] = {
    "records_by_time": {},
    "records_by_name": {"name": "support"},
    "records_by_freshness": {"freshness_status": "stale"},
}


@pytest.fixture
def plan(parts: Embedded, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return the query plan of the last query."""
    read, queries = parts.home.read, list[tuple[str, Any]]()

    def noted(sql: str, arguments: Any = ()) -> list[Any]:
        queries.append((sql, arguments))
        return read(sql, arguments)

    monkeypatch.setattr(parts.home, "read", noted)

    def explained() -> str:
        sql, arguments = queries[-1]
        return "\n".join(row[-1] for row in read(f"EXPLAIN QUERY PLAN {sql}", arguments))

    return explained


@pytest.mark.parametrize("index", PLANS)
async def test_a_list_is_one_range_of_an_index(
    log: SqliteRecordLog, plan: Callable[[], str], index: str
) -> None:
    first = record()
    await log.append(first, [])
    day = timedelta(days=1)
    await log.records(
        RecordQuery(start=START - day, end=START, before=first.context_id, **PLANS[index])
    )
    assert f"USING INDEX {index} (" in plan()
    assert "(created_at,context_id)<" in plan()
    assert "TEMP B-TREE" not in plan()


async def test_finding_reads_the_keys_in_order(
    log: SqliteRecordLog, plan: Callable[[], str]
) -> None:
    await log.find(b"key")
    searched = (
        "SEARCH record_keys USING PRIMARY KEY (key=? AND created_at>? AND (created_at,context_id)<"
    )
    assert searched in plan()
    assert "SEARCH records USING INDEX" in plan()
    assert "SCAN records" not in plan()


async def test_waiting_keys_are_moved_in_batches(log: SqliteRecordLog, parts: Embedded) -> None:
    kept = [record(at=START + timedelta(seconds=number)) for number in range(20)]
    for number, each in enumerate(kept):
        own = [b"every", b"odd" if number % 2 else b"even", *(os.urandom(16) for _ in range(50))]
        await log.append(each, own)
    assert 0 < parts.tail_rows("waiting_keys") < 512 < parts.tail_rows("record_keys")
    newest = [each.context_id for each in reversed(kept)]
    assert [each.context_id for each in await log.find(b"every")] == newest
    assert [each.context_id for each in await log.find(b"odd")] == newest[::2]
    page = await log.find(b"every", limit=3)
    rest = await log.find(b"every", before=page[-1].context_id)
    assert [each.context_id for each in (*page, *rest)] == newest


async def test_getting_looks_a_record_up(log: SqliteRecordLog, plan: Callable[[], str]) -> None:
    await log.get("0190")
    assert plan().count("SEARCH records USING INDEX") == 2
    assert "SCAN" not in plan()


@pytest.mark.parametrize(
    ("index", "filters"),
    [
        ("records_by_freshness (freshness_status=?", {"freshness_status": "stale"}),
        ("records_by_name (name=?", {"name": "support", "freshness_status": "stale"}),
        ("records_by_caller (caller=?", {"caller": "web", "freshness_status": "stale"}),
    ],
)
async def test_a_count_reads_an_index_alone(
    log: SqliteRecordLog, plan: Callable[[], str], index: str, filters: dict[str, Any]
) -> None:
    await log.count(RecordQuery(**filters), [START, START + timedelta(days=1)], 10)
    assert (
        f"SEARCH records USING COVERING INDEX {index} AND created_at>? AND created_at<?" in plan()
    )


async def test_records_with_a_key_are_counted_by_the_keys_alone(
    log: SqliteRecordLog, plan: Callable[[], str]
) -> None:
    await log.count_found(b"key", [START, START + timedelta(days=1)], 10)
    searched = "SEARCH record_keys USING PRIMARY KEY (key=? AND created_at>? AND created_at<?)"
    assert searched in plan()


async def test_records_with_a_prefix_are_found_by_the_index_of_ids_or_hashes(
    log: SqliteRecordLog, plan: Callable[[], str]
) -> None:
    await log.beginning("01a1")
    assert "(context_id>? AND context_id<?)" in plan()
    assert "TEMP B-TREE" not in plan()
    await log.beginning("sha256:76f7")
    assert "(record_hash>? AND record_hash<?)" in plan()
    assert "(context_id=?)" in plan()


@pytest.mark.parametrize(
    ("index", "sought"),
    [
        ("COVERING INDEX outcomes_by_score (name=?", {"name": "helpful", "value": 3.0}),
        ("COVERING INDEX outcomes_by_label (label_key=?", {"label_key": b"key"}),
        ("COVERING INDEX outcomes_by_model (model=?", {"model": "gpt-6"}),
        ("COVERING INDEX outcomes_by_error (error_type=?", {"error_type": "RateLimitError"}),
    ],
)
async def test_records_with_an_outcome_are_one_range_of_an_index(
    log: SqliteRecordLog, plan: Callable[[], str], index: str, sought: dict[str, Any]
) -> None:
    await log.having(OutcomeFilter(operator="<", **sought))
    assert f"SEARCH outcomes USING {index} AND created_at>? AND (created_at,context_id)<" in plan()
    assert "SEARCH records USING INDEX" in plan()
    assert "TEMP B-TREE FOR DISTINCT" not in plan()


async def test_measured_tokens_are_read_from_an_index_alone(
    log: SqliteRecordLog, plan: Callable[[], str]
) -> None:
    await log.measured("gpt-6")
    assert "SEARCH outcomes USING COVERING INDEX outcomes_measured (counted_model=?" in plan()
    assert "TEMP B-TREE" not in plan()
    await log.measured_models()
    assert "SEARCH outcomes USING COVERING INDEX outcomes_measured (counted_model>?" in plan()


async def test_the_outcomes_of_a_context_are_one_range_of_an_index(
    log: SqliteRecordLog, plan: Callable[[], str]
) -> None:
    await log.outcomes(["a"])
    assert "SEARCH outcomes USING INDEX outcomes_by_context (context_id=?" in plan()
    assert "TEMP B-TREE" not in plan()
    await log.outcome_page()
    assert "SEARCH outcomes USING INDEX outcomes_by_time" in plan()
    assert "TEMP B-TREE" not in plan()
