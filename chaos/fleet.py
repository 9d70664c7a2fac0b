"""The worker processes of a run: started, killed or frozen, and replaced when they exit."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from chaos import clock
from chaos.waiting import until
from headwater import FeatureStore
from headwater.errors import BackendError
from headwater.settings.loading import environment_without_settings
from headwater.settings.schema import SETTINGS, Settings

FEATURES = Path(__file__).with_name("features.py")
NEXT_FEATURES = Path(__file__).with_name("next_features.py")
SECOND_FEATURES = Path(__file__).with_name("second_group.py")
SECOND_GROUP = "second"

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


class Place:
    """The place of one worker process, which is replaced when it exits."""

    def __init__(self, number: int, features: Path, settings: Settings, folder: Path) -> None:
        self.log = folder / f"worker-{number}.log"
        self.clock = folder / f"clock-{number}"
        self.features = features
        self.environment = environment(settings) | {clock.VARIABLE: str(self.clock)}
        self.process: asyncio.subprocess.Process | None = None
        self.is_retired = False

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0


class Fleet:
    """A number of `headwater worker` processes; one that exits is replaced.

    The last ``second`` of them are the workers of a second consumer group.
    """

    def __init__(self, settings: Settings, folder: Path, workers: int, second: int = 0) -> None:
        self._settings = settings
        self._folder = folder
        other = settings.replace(worker={"consumer_group": SECOND_GROUP})
        self._places = [
            *(Place(number, FEATURES, settings, folder) for number in range(workers)),
            *(Place(workers + number, SECOND_FEATURES, other, folder) for number in range(second)),
        ]
        self._first_group = workers
        self._started = len(self._places)
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
        await self._start(self._places)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._replace_no_more()
        for place in self._places:
            place.signal(signal.SIGKILL)
        await asyncio.gather(*self._keepers)
        if self._guard is not None:
            self._guard.kill()
            await self._guard.wait()

    async def _start(self, places: Sequence[Place]) -> None:
        for place in places:
            clock.step(place.clock, 0)
            place.process = await self._spawn(place)
            self._keepers.append(asyncio.create_task(self._keep(place)))

    async def at_work(self, store: FeatureStore, seconds: float) -> bool:
        """Wait until all workers send heartbeats; return False after the time limit."""

        async def joined() -> bool:
            return {place.pid for place in self._places} <= await pids_at_work(store)

        return await until(joined, seconds)

    async def stop(self) -> list[int]:
        """Stop the running processes with SIGTERM; return their exit codes."""
        await self._replace_no_more()
        running = [
            each for each in self._places if each.process and each.process.returncode is None
        ]
        return [await self._end(place) for place in running]

    async def _replace_no_more(self) -> None:
        async with self._spawning:
            self._ending = True

    async def restart(self, worker: int) -> None:
        """Stop a process with SIGTERM; return when it has exited and is being replaced."""
        await self._end(self._places[worker])

    async def deploy(
        self, features: Path, is_at_work: Callable[[Collection[int]], Awaitable[None]]
    ) -> None:
        """Replace the workers of the first group by workers of another features file.

        All new ones are started first; when ``is_at_work``, which gets their process ids, returns,
        the old ones are stopped one after the other.
        """
        old, others = self._places[: self._first_group], self._places[self._first_group :]
        new = [
            Place(self._started + n, features, self._settings, self._folder)
            for n in range(len(old))
        ]
        self._started += len(new)
        self._places = [*new, *others, *old]
        await self._start(new)
        await is_at_work([place.pid for place in new])
        for place in old:
            place.is_retired = True
            await self._end(place)
        self._places = [*new, *others]

    async def _end(self, place: Place) -> int:
        process = place.process
        assert process
        place.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOPPED_WITHIN_SECONDS):
                return await process.wait()
        except TimeoutError:
            self.stuck += 1
            process.kill()
            return await process.wait()

    async def _spawn(self, place: Place) -> asyncio.subprocess.Process:
        with place.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headwater", "worker", str(place.features), "--json"),
                cwd=self._folder,
                env=place.environment,
                stdout=log,
                stderr=log,
                process_group=self._guard.pid if self._guard else None,
            )

    async def _keep(self, place: Place) -> None:
        while place.process:
            code = await place.process.wait()
            if not self._ending and code not in (0, -signal.SIGKILL):
                await asyncio.sleep(_PAUSE_SECONDS)
            async with self._spawning:
                if self._ending:
                    return
                self.exits[code] += 1
                if place.is_retired:
                    return
                place.process = await self._spawn(place)

    def kill(self, worker: int) -> None:
        self._places[worker].signal(signal.SIGKILL)

    async def freeze(self, worker: int, seconds: float) -> None:
        """Stop a process (SIGSTOP) for a number of seconds."""
        place = self._places[worker]
        place.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        place.signal(signal.SIGCONT)

    async def step_clock(self, worker: int, by: int, seconds: float) -> None:
        """Set the clock of a worker forward or back, for a number of seconds."""
        file = self._places[worker].clock
        clock.step(file, by)
        await asyncio.sleep(seconds)
        clock.step(file, 0)

    @property
    def pids(self) -> list[int]:
        """The process ids of the fleet."""
        return [place.pid for place in self._places]

    def __len__(self) -> int:
        return len(self._places)


async def pids_at_work(store: FeatureStore) -> set[int]:
    """Return the processes of the live workers of all groups; none while Redis is unavailable."""
    try:
        groups = await store.admin.groups()
    except BackendError:
        return set()
    return {pid_of(worker) for group in groups for worker in group.workers}


def pid_of(worker: str) -> int:
    """Return the process id of a worker."""
    return int(worker.rsplit("-", 2)[1])
