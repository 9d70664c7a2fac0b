"""The worker processes of a run: started, killed or frozen, and replaced when they exit."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import redis.asyncio
from redis.exceptions import RedisError

from chaos.waiting import until
from headwater.backends.redis.keys import Keys
from headwater.settings.loading import environment_without_settings
from headwater.settings.schema import SETTINGS, Settings

FEATURES = Path(__file__).with_name("features.py")

_PAUSE_SECONDS = 0.2
# Longer than a worker's own limit for a clean stop.
_STOPPED_WITHIN_SECONDS = 45.0
_COVERAGE = "COVERAGE_PROCESS_CONFIG"

# Waits for the end of its input, which comes when the process at the other end exits,
# in any way; then kills the workers that it left behind, which share its process group.
_GUARD = "read -r _; kill -s KILL 0"


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables that give a process these settings."""
    defaults = Settings()
    given = {
        setting.variable: str(setting.of(settings))
        for setting in SETTINGS.values()
        if setting.variable and setting.of(settings) != setting.of(defaults)
    }
    # Coverage would slow down the start of processes that are killed every few seconds.
    plain = {
        name: text for name, text in environment_without_settings().items() if name != _COVERAGE
    }
    return plain | given


class Fleet:
    """A number of `headwater worker` processes; one that exits is replaced."""

    def __init__(self, settings: Settings, folder: Path, workers: int) -> None:
        self._settings = settings
        self._environment = environment(settings)
        self._folder = folder
        self._workers = workers
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._guard: asyncio.subprocess.Process | None = None
        self._ending = False
        self._spawning = asyncio.Lock()
        self.exits: Counter[int] = Counter()
        """Number of exits by exit code; a signal is a negative code."""
        self.stuck = 0
        """Number of processes that did not stop after SIGTERM."""

    async def __aenter__(self) -> Self:
        self._guard = await asyncio.create_subprocess_exec(
            *("sh", "-c", _GUARD), stdin=asyncio.subprocess.PIPE, process_group=0
        )
        for worker in range(self._workers):
            self._processes[worker] = await self._spawn(worker)
            self._keepers.append(asyncio.create_task(self._keep(worker)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._replace_no_more()
        for worker in self._processes:
            self.kill(worker)
        await asyncio.gather(*self._keepers)
        if self._guard is not None:
            self._guard.kill()
            await self._guard.wait()

    async def at_work(self, seconds: float) -> bool:
        """Wait until all workers send heartbeats; return False after the time limit."""
        worker = self._settings.worker
        keys = Keys(self._settings.redis.prefix, self._settings.partitions, worker.consumer_group)
        async with redis.asyncio.Redis.from_url(self._settings.redis.url) as client:

            async def joined() -> bool:
                try:
                    return bool(await client.zcard(keys.workers) == self._workers)
                except RedisError:
                    return False

            return await until(joined, seconds)

    async def stop(self) -> list[int]:
        """Stop the running processes with SIGTERM; return their exit codes."""
        await self._replace_no_more()
        running = [w for w, process in self._processes.items() if process.returncode is None]
        return [await self._end(worker) for worker in running]

    async def _replace_no_more(self) -> None:
        async with self._spawning:
            self._ending = True

    async def restart(self, worker: int) -> None:
        """Stop a process with SIGTERM; return when it has exited and is being replaced."""
        await self._end(worker)

    async def _end(self, worker: int) -> int:
        process = self._processes[worker]
        self._signal(worker, signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOPPED_WITHIN_SECONDS):
                return await process.wait()
        except TimeoutError:
            self.stuck += 1
            process.kill()
            return await process.wait()

    async def _spawn(self, worker: int) -> asyncio.subprocess.Process:
        with (self._folder / f"worker-{worker}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headwater", "worker", str(FEATURES), "--json"),
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                process_group=self._guard.pid if self._guard else None,
            )

    async def _keep(self, worker: int) -> None:
        while True:
            code = await self._processes[worker].wait()
            if not self._ending and code not in (0, -signal.SIGKILL):
                await asyncio.sleep(_PAUSE_SECONDS)
            async with self._spawning:
                if self._ending:
                    return
                self.exits[code] += 1
                self._processes[worker] = await self._spawn(worker)

    def _signal(self, worker: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._processes[worker].send_signal(number)

    def kill(self, worker: int) -> None:
        self._signal(worker, signal.SIGKILL)

    async def freeze(self, worker: int, seconds: float) -> None:
        """Stop a process (SIGSTOP) for a number of seconds."""
        process = self._processes[worker]
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            process.send_signal(signal.SIGCONT)

    @property
    def pids(self) -> list[int]:
        """The process ids of the fleet."""
        return [process.pid for process in self._processes.values()]

    def __len__(self) -> int:
        return self._workers
