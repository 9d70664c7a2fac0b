"""The suite of runners: what each promises, and that results are the same on all of them."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conformance.runner_tasks import DieUntil, Double, Doubled, Fail, Hang, HangOnce, Nap, Read
from headwater import FeatureStore, ServiceEvent
from headwater.backends.duckdb import frame_plan, history_export
from headwater.backends.runners.choice import runner_of
from headwater.backends.runners.processes import ProcessRunner
from headwater.backends.runners.sent_task import SentTask
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.errors import TaskFailedError
from headwater.history import window_frames
from headwater.history.backfill.replay import replay, replayed_changes
from headwater.history.backfill.task import ReplayJob
from headwater.model.backfills import BackfillProgress
from headwater.model.contexts import Overrides
from headwater.ports import Runner, Task
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from headwater.store.task_store import FeaturesFile

START = datetime(2026, 1, 1, tzinfo=UTC)
USERS = 40
TOTALS = {
    f"u{user}": list(accumulate(range(2 * user, 20 * USERS, 2 * USERS))) for user in range(USERS)
}
PATIENCE_SECONDS = 120.0
FEATURES = """
import os
import time
from pathlib import Path

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from HELPER import doubled

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="buy", default=0)
async def total(user_id: str, event: ServiceEvent) -> int:
    if (gate := event.payload.get("gate")) is not None and Path(gate).exists():
        own = Path(gate).with_suffix(f".{os.getpid()}")
        own.write_text(str(os.getpid()))
        own.rename(own.with_suffix(".reached"))
        while Path(gate).exists():
            time.sleep(0.01)
    return await total.get(user_id) + doubled(event.payload["amount"])


@feature(entity=User, trigger="buy", window=["1h", "7d"], aggregate=["count", "sum", "p95"])
def spend(user_id: str, event: ServiceEvent) -> float:
    return float(event.payload["amount"])


@context(store, max_tokens=200)
async def support(user_id: str) -> list[ContextItem]:
    return [ContextItem.template("{total} so far, {spend_count_7d} purchases", required=True)]
"""
HELPER = "def doubled(number: int) -> int:\n    return 2 * number\n"
RUN = """
import asyncio, pickle, sys
from headwater.declarations.runtime import runtime_of
from headwater.core.clock import SystemClock
from headwater.store.loader import load_store

async def run():
    store = load_store(sys.argv[1])
    await runtime_of(store).rebind(pickle.load(sys.stdin.buffer), SystemClock())
    async with store:
        await store.backfills.run("total")

asyncio.run(run())
"""


async def results(runner: Runner, *tasks: Task[Doubled]) -> list[Doubled]:
    return [result async for result in runner.map(tasks)]


def is_running(process: int) -> bool:
    """Return whether a process exists and has memory, which one that is ending has given back."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another process makes true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide little work into several tasks."""
    monkeypatch.setattr(frame_plan, "MAX_POINTS", 200)
    monkeypatch.setattr(window_frames, "ROWS_OF_A_TASK", 100)
    monkeypatch.setattr(history_export, "SEGMENT_ROWS", 5)


class Project:
    """A features file, a store with events, and recorded contexts."""

    def __init__(self, folder: Path, chosen: Mapping[str, Any]) -> None:
        self.folder = folder
        self.features = folder / "code" / "features.py"
        self.chosen = chosen

    def settings(self, runner: Mapping[str, Any]) -> Settings:
        folder = self.folder / "files"
        folder.mkdir(exist_ok=True)
        return Settings().replace(
            home=self.folder / "home",
            partitions=4,
            runner={"folder": folder, **runner},
            eval={"folder": self.folder / "evals", "portion": 5},
        )

    async def opened(self, runner: Mapping[str, Any]) -> FeatureStore:
        store = load_store(self.features)
        await runtime_of(store).rebind(self.settings(runner), SystemClock())
        return store

    def write_code(self) -> None:
        self.features.parent.mkdir(parents=True)
        # Of a name that no other project of this process has imported.
        helper = f"helper_{uuid4().hex}"
        self.features.write_text(FEATURES.replace("HELPER", helper))
        self.features.with_name(f"{helper}.py").write_text(HELPER)

    async def fill(self) -> None:
        """Publish events, and record contexts of what they led to."""
        self.write_code()
        async with await self.opened({}) as store:
            events = [
                ServiceEvent(
                    "buy",
                    f"u{number % USERS}",
                    {"amount": number, "gate": str(self.gate)},
                    START + timedelta(minutes=number),
                )
                for number in range(10 * USERS)
            ]
            await store.bus.publish_many(events)
            await store.drain()
            for number in range(20):
                await runtime_of(store).assemble_named(
                    "support", {"user_id": f"u{number}"}, Overrides()
                )
            await store.evaluations.freeze("all", context="support", file=str(self.features))

    @property
    def gate(self) -> Path:
        """While this file exists, the handler waits, and says so in `gate.reached`."""
        return self.folder / "gate"

    async def history(self, store: FeatureStore) -> list[Any]:
        """Return the values of the version that a backfill made."""
        engine = await runtime_of(store).open()
        rows = await engine.backends.offline.query(
            "SELECT entity_id, CAST(value AS VARCHAR) AS value, as_of, cause"
            " FROM feature_history WHERE feature LIKE 'total@%' ORDER BY ALL",
            {},
        )
        return list(rows.rows)

    async def job(self, store: FeatureStore) -> ReplayJob:
        """Return a replay of all events, in four files."""
        backends = (await runtime_of(store).open()).backends
        folder = self.folder / "replay"
        folder.mkdir()
        positions = await backends.groups.positions(store.settings.worker.consumer_group)
        files = await backends.offline.export_events(folder, ["buy"], positions, files=4)
        return ReplayJob(
            source=FeaturesFile.of(self.features, store.settings),
            feature="total",
            series="total@2",
            folder=folder / "results",
            files=files,
        )

    async def computed(self, runner: Mapping[str, Any]) -> dict[str, Any]:
        """Return training sets, a backfill and an evaluation as a runner computes them."""
        frame = self.folder / "frame.csv"
        rows = [f"u{n % USERS},{START + timedelta(minutes=3 * n)}" for n in range(200)]
        frame.write_text("\n".join(["user_id,timestamp", *rows]))
        output, evals = self.folder / "values.parquet", self.folder / "evals" / "all"
        async with await self.opened(runner) as store:
            await store.history.export(self.folder / "export")
            found: dict[str, Any] = {}
            for place in (None, self.folder / "export"):
                names = ["total", "spend_sum_1h", "spend_p95_7d"]
                await store.get_historical_features(frame, names, output=output, exported=place)
                found[f"frame of {place}"] = output.read_bytes()
            await store.evaluations.run("all", file=str(self.features), again=True)
            parts = sorted(evals.glob("*/part-*.jsonl"))
            found["evaluation"] = [part.read_bytes() for part in parts]
            await store.backfills.run("total")
            found["backfill"] = await self.history(store)
            await store.backfills.cancel("total")
        return found


class RunnerSuite:
    """Promises of a runner; a subclass says by which settings it is chosen."""

    @pytest.fixture
    def chosen(self) -> dict[str, Any]:
        """Return the settings of the runner."""
        raise NotImplementedError

    @pytest.fixture
    def runner(self, chosen: dict[str, Any]) -> Runner:
        return runner_of(Settings().replace(runner=chosen).runner)

    @pytest.fixture
    async def project(self, tmp_path: Path, chosen: dict[str, Any]) -> Project:
        project = Project(tmp_path, chosen)
        await project.fill()
        return project

    async def test_results_of_all_tasks_arrive_in_any_order(self, runner: Runner) -> None:
        tasks = [Double(number) for number in range(5)]
        done = await results(runner, *tasks)
        assert sorted(number for number, _ in done) == [0, 2, 4, 6, 8]
        assert os.getpid() not in {process for _, process in done}
        assert await runner.slots() > 1
        assert await results(runner) == []

    async def test_results_arrive_while_other_tasks_run(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        running = runner.map([Hang(tmp_path / "process"), Double(4)])
        assert (await anext(running))[0] == 8
        await running.aclose()

    async def test_an_error_of_a_task_is_raised_with_its_text(self, runner: Runner) -> None:
        with pytest.raises(TaskFailedError, match=r"^'3 parsecs' is not a duration") as raised:
            await results(runner, Double(1), Fail("3 parsecs"))
        assert "in run" in raised.value.trace
        with pytest.raises(TaskFailedError, match=r"^ValueError: unexpected$"):
            await results(runner, Fail(""))

    async def test_after_an_error_tasks_end_and_others_do_not_begin(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        # In any order, one of those that run at once is not hanging and comes to the error.
        hanging = [Hang(tmp_path / f"h{number}") for number in range(await runner.slots() - 1)]
        others = [Nap(tmp_path / str(number)) for number in range(40)]
        with pytest.raises(TaskFailedError, match="unexpected"):
            await results(runner, *hanging, Fail(""), *others)
        await self._check_ended(runner, tmp_path)

    async def _check_ended(self, runner: Runner, folder: Path) -> None:
        """Check that no task is running, nor begins while others run."""
        begun = files(folder)
        assert not any(is_running(int(file.read_text() or 0)) for file in begun)
        await results(runner, *map(Double, range(5)))
        assert files(folder) == begun

    async def test_a_task_whose_process_dies_is_run_again_three_times_in_all(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        (result,) = await results(runner, DieUntil(tmp_path, 2))
        assert result[0] == 2
        with pytest.raises(TaskFailedError, match=r"DieUntil.* ended each time"):
            await results(runner, DieUntil(tmp_path, 99))
        assert len(files(tmp_path)) == 5

    async def test_a_task_whose_process_is_killed_from_outside_is_run_again(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        file = tmp_path / "process"
        running = asyncio.create_task(results(runner, HangOnce(file), Double(1)))
        await until(file.exists)
        process = int(file.read_text())
        self.kill(process)
        assert sorted(number for number, _ in await running) == [0, 2]
        assert process not in {each for _, each in running.result()}

    def kill(self, process: int) -> None:
        """Kill the process that runs a task, or the one that started it."""
        os.kill(process, signal.SIGKILL)

    async def test_when_the_iteration_is_cancelled_no_task_is_running(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        tasks = [Hang(tmp_path / str(number)) for number in range(await runner.slots() + 2)]
        running = asyncio.create_task(results(runner, *tasks))
        await until(lambda: any(task.file.exists() for task in tasks))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await self._check_ended(runner, tmp_path)

    async def test_a_process_that_does_not_see_a_file_is_told_apart(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        file = tmp_path / "file"
        file.write_text("1234")
        assert [size for size, _ in await results(runner, Read(file))] == [4]
        (sent,) = SentTask.of([Read(file)])
        file.write_text("of another node")
        assert "does not see" in (sent.run().error or "")

    async def test_the_results_are_the_same_as_in_one_process(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = await project.computed({"kind": "auto", "processes": 1})
        small_tasks(monkeypatch)
        after = await project.computed(project.chosen)
        assert len({file.name[:17] for file in (project.folder / "export").glob("*.parquet")}) > 8
        assert before.keys() == after.keys()
        for name, result in before.items():
            assert after[name] == result, name

    async def test_the_features_file_travels_along(self, project: Project, runner: Runner) -> None:
        async with await project.opened(project.chosen) as store:
            job = await project.job(store)
            # No process finds code where the sender had it.
            original = project.features.parent
            shutil.move(original, original.with_name("moved"))
            assert (await replay(job, runner)).values == 10 * USERS

    async def test_progress_reaches_the_caller(self, project: Project) -> None:
        shown: list[BackfillProgress] = []
        async with await project.opened(project.chosen) as store:
            await store.backfills.run("total", progress=shown.append)
        counts = [each.done for each in shown if each.phase == "replay"]
        assert counts == sorted(counts)
        assert counts[-1] == 10 * USERS

    async def test_tasks_that_run_twice_at_once_have_the_effect_of_one(
        self, project: Project, runner: Runner
    ) -> None:
        async with await project.opened(project.chosen) as store:
            job = await project.job(store)
            first, second = await asyncio.gather(replay(job, runner), replay(job, runner))
            assert first == second
            assert self._totals(store, job) == TOTALS

    async def test_a_frozen_task_that_wakes_after_its_successor_changes_nothing(
        self, project: Project, runner: Runner
    ) -> None:
        async with await project.opened(project.chosen) as store:
            job = await project.job(store)
            project.gate.touch()
            first = asyncio.create_task(replay(job, runner))
            reached = project.gate.with_suffix(".reached")
            await until(reached.exists)
            frozen = int(reached.read_text())
            os.kill(frozen, signal.SIGSTOP)
            try:
                project.gate.unlink()
                report = await replay(job, ProcessRunner(1))
            finally:
                os.kill(frozen, signal.SIGCONT)
            assert await first == report
            assert self._totals(store, job) == TOTALS

    async def test_a_driver_that_was_killed_is_resumed(self, project: Project) -> None:
        expected = (await project.computed({"kind": "auto"}))["backfill"]
        project.gate.touch()
        command = (sys.executable, "-c", RUN, project.features)
        driver = await asyncio.create_subprocess_exec(*command, stdin=PIPE)
        assert driver.stdin is not None
        driver.stdin.write(pickle.dumps(project.settings(project.chosen)))
        driver.stdin.close()
        reached = project.gate.with_suffix(".reached")
        await until(reached.exists)
        process = int(reached.read_text())
        driver.kill()
        await driver.wait()
        # Its tasks end as well.
        await until(lambda: not is_running(process))
        project.gate.unlink()
        await self._backfill(project)
        async with await project.opened({"kind": "auto"}) as store:
            assert await project.history(store) == expected

    def _totals(self, store: FeatureStore, job: ReplayJob) -> dict[str, list[int]]:
        """Return the values that a replay has made of each user, in order."""
        totals: dict[str, list[int]] = {}
        for changes in replayed_changes(job, runtime_of(store).registry.feature("total")):
            for change in changes:
                totals.setdefault(change.entity_id, []).append(int(bytes(change.cell.value)))
        return totals

    async def _backfill(self, project: Project) -> None:
        async with await project.opened(project.chosen) as store:
            await store.backfills.run("total")
