"""Tasks on Spark: each is a job of one element, which Spark runs again if its executor dies."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, StatusTracker
from pyspark.errors import PySparkException

from headwater.backends.runners.processes import MAX_STARTS
from headwater.backends.runners.sent_task import SentTask, TaskAnswer
from headwater.errors import BackendUnavailableError
from headwater.model.values import new_id
from headwater.ports import Task
from headwater.settings.groups import RunnerSettings
from headwater.settings.loading import set_default_variable

T = TypeVar("T")

_LOCAL = re.compile(r"local(?:\[([\d*]+)\])?")
_SECONDS_BETWEEN_LOOKS = 0.1


class SparkRunner:
    """Runs tasks in the Spark session of this driver, or in one that the settings name."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings

    async def slots(self) -> int:
        context = await asyncio.to_thread(self._context)
        return int(context.defaultParallelism)

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        sent = SentTask.of(tasks)
        context = await asyncio.to_thread(self._context)
        group = f"headwater-{new_id()}"

        def run(task: SentTask) -> TaskAnswer:
            context.setJobGroup(group, task.name)
            try:
                answers: list[TaskAnswer] = (
                    context.parallelize([task], 1).map(SentTask.run).collect()
                )
            except Py4JError as error:
                raise task.lost(str(error).partition("\n")[2].partition("\n")[0]) from error
            return answers[0]

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max(1, min(len(sent), context.defaultParallelism))) as threads:
            running = {loop.run_in_executor(threads, run, task) for task in sent}
            try:
                while running:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for future in done:
                        yield future.result().result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
                await asyncio.shield(_end(context, group, running))

    def _context(self) -> SparkContext:
        """Return the context of this driver; start one if there is none."""
        settings = self._settings
        # Otherwise Spark's workers take the Python of the system.
        set_default_variable("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf().setAppName("headwater")
        if settings.address:
            # In one process Spark does not repeat tasks unless the address says so.
            local = _LOCAL.fullmatch(settings.address)
            cores = local and f"local[{local[1] or 1},{MAX_STARTS}]"
            conf.setMaster(cores or settings.address)
        conf.setAll([("spark.task.maxFailures", str(MAX_STARTS)), *settings.options.items()])
        try:
            return SparkContext.getOrCreate(conf)
        except (Py4JError, PySparkException) as error:
            raise BackendUnavailableError(
                f"cannot start Spark with runner.address = {settings.address!r}: {error}; it needs "
                "Java 17 in PATH or JAVA_HOME, and a master that runs"
            ) from error


async def _end(
    context: SparkContext, group: str, running: Iterable[asyncio.Future[TaskAnswer]]
) -> None:
    """End the jobs that run; return when none of their tasks is running."""
    waiting = {future for future in running if not future.cancelled()}
    is_cancelled = bool(waiting)
    while waiting:
        # Repeated, because a job that is just being submitted is not found.
        await asyncio.to_thread(context.cancelJobGroup, group)
        done, waiting = await asyncio.wait(waiting, timeout=_SECONDS_BETWEEN_LOOKS)
        for future in done:
            if not future.cancelled():
                future.exception()
    # A cancelled job ends at once, and the processes of its tasks some seconds later.
    tracker = context.statusTracker()
    while is_cancelled and await asyncio.to_thread(_is_active, tracker, group):  # noqa: ASYNC110
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)


def _is_active(tracker: StatusTracker, group: str) -> bool:
    """Return whether a job of a group, or a task of one, is known to run."""
    jobs = [job for each in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(each))]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    return any(job.status == "RUNNING" for job in jobs) or any(
        stage is not None and stage.numActiveTasks > 0 for stage in stages
    )
