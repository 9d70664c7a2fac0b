"""Commits of a replay: killed processes, several at once, and leftovers change no result."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent
from headwater.backends.runners.inline import InlineRunner
from headwater.backends.runners.processes import ProcessRunner
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.history.backfill import erasing, event_file
from headwater.history.backfill.replay import replay, replayed_changes
from headwater.history.backfill.task import ReplayJob, ReplayTask, StoreSource
from headwater.model.backfills import ReplayReport
from headwater.ports import Ledger
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from headwater.store.task_store import FeaturesFile
from tests.history.backfill.support import OpenStore, declared, write_events

_FEATURES = Path(__file__).with_name("features_that_die.py")

Sums = dict[str, list[int]]


@pytest.fixture
async def file(home: Path) -> AsyncIterator[FeatureStore]:
    """Yield the store of the features file."""
    store = load_store(_FEATURES)
    await runtime_of(store).rebind(Settings().replace(home=home), SystemClock())
    yield store
    await store.close()


def events(count: int, dying: dict[int, Path]) -> list[ServiceEvent]:
    """Return numbered events of some users; a handler dies at some of them."""
    return [
        ServiceEvent(
            "buy",
            f"u{number % 13}",
            {"number": number} | ({"dies": str(dying[number])} if number in dying else {}),
        )
        for number in range(count)
    ]


def job_for(
    source: StoreSource, published: list[ServiceEvent], folder: Path, files: int = 1
) -> ReplayJob:
    """Return a job that commits after every page."""
    return ReplayJob(
        source=source,
        feature="total",
        series="total@2",
        folder=folder / "results",
        files=write_events(published, folder, files),
        snapshot_seconds=0,
    )


def replayed(job: ReplayJob, file: FeatureStore) -> Sums:
    """Return the committed values by user, which are written later and later."""
    found: Sums = {}
    written: Counter[str] = Counter()
    for page in replayed_changes(job, declared(file, "total")):
        for change in page:
            assert change.cell.written_at > written[change.entity_id]
            written[change.entity_id] = change.cell.written_at
            found.setdefault(change.entity_id, []).append(int(bytes(change.cell.value)))
    return found


def expected(published: list[ServiceEvent]) -> Sums:
    """Return the running sum of each user's numbers."""
    numbers: Sums = {}
    for event in published:
        numbers.setdefault(event.entity_id, []).append(event.payload["number"])
    return {user_id: list(accumulate(each)) for user_id, each in numbers.items()}


async def test_a_replay_continues_after_its_processes_were_killed(
    file: FeatureStore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_HOME", str(home))
    dying = {number: tmp_path / f"died-{number}" for number in (2_000, 9_000)}
    published = events(12_000, dying)
    job = job_for(FeaturesFile(str(_FEATURES)), published, tmp_path)
    report = await replay(job, ProcessRunner(1))
    assert all(marker.exists() for marker in dying.values())
    assert report == ReplayReport(12_000, 12_000, 0, {})
    assert replayed(job, file) == expected(published)


def test_the_name_of_a_task_in_errors_has_no_settings(tmp_path: Path) -> None:
    job = job_for(FeaturesFile(str(_FEATURES)), events(1, {}), tmp_path)
    assert repr(ReplayTask(job, job.files[0])) == "the replay of events-0000-1023.parquet"


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read ten events at a time."""
    monkeypatch.setattr(event_file, "_PAGE", 10)


@pytest.mark.usefixtures("small_pages")
async def test_runs_at_the_same_time_give_one_result(file: FeatureStore, tmp_path: Path) -> None:
    published = events(300, {})
    job = job_for(OpenStore(file), published, tmp_path, files=2)
    reports = await asyncio.gather(
        replay(job, InlineRunner()), replay(job, InlineRunner()), replay(job, InlineRunner())
    )
    assert list(reports) == [ReplayReport(300, 300, 0, {})] * 3
    assert replayed(job, file) == expected(published)


@pytest.mark.usefixtures("small_pages")
async def test_results_that_no_commit_names_do_not_count(
    file: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = events(100, {})
    job = job_for(OpenStore(file), published, tmp_path)
    link, links = os.link, iter(range(1_000))

    def fail_sometimes(source: Path, target: Path) -> None:
        if next(links) % 2:
            raise OSError("no space left on device")
        link(source, target)

    monkeypatch.setattr(os, "link", fail_sometimes)
    task = ReplayTask(job, job.files[0])
    while not task.commits().last()[1].is_last:
        with suppress(OSError):
            await asyncio.to_thread(task.run)
    assert task.run().events == 100
    assert replayed(job, file) == expected(published)


def test_a_run_that_is_killed_while_it_begins_can_be_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(file: Path, *_: object) -> None:
        file.touch()  # opened, and nothing written yet
        raise KeyboardInterrupt

    ledger = Ledger()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            erasing.begin(tmp_path, "User", ledger)
    erasing.begin(tmp_path, "User", ledger)
    assert (tmp_path / "erasures").read_text() == "0"
