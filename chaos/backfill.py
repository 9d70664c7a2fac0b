"""A backfill while events flow, of which the command and the workers are killed again and again."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from chaos import backfill_features
from chaos.fleet import environment
from chaos.run import opened
from chaos.waiting import until
from headwater import ServiceEvent
from headwater.declarations.runtime import runtime_of
from headwater.model.catalog import FeatureVersion
from headwater.settings.schema import Settings

FEATURES = Path(__file__).with_name("backfill_features.py")
_PATIENCE_SECONDS = 240.0
_BEFORE = 10
_PUBLISH_PAUSE = 0.05
_WORKER_SHARE = 0.6
"""How often a worker is killed as well."""
_LAST = 5


class BackfillOrder(NamedTuple):
    """How often the backfill is killed, and at most how long after it has reached a phase.

    The processes replay the events of so many accounts.
    """

    seed: int
    kills: int
    pause: float = 0.3
    processes: int = 2
    accounts: int = 12


class Findings(NamedTuple):
    """The number of events, and every difference to a store that had the feature at once."""

    events: int
    kills: Mapping[str, int]
    differences: list[str]


class Process:
    """A command that is killed and started again."""

    def __init__(self, settings: Settings, log: Path, *arguments: str) -> None:
        self._environment = environment(settings)
        self._log = log
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the command, unless it is running."""
        if self._process is None or self._process.returncode is not None:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "headwater", *self._arguments),
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                )

    async def end(self, how: signal.Signals) -> int | None:
        """Send a signal, and return the exit code; None if it was not running."""
        if self._process is None or self._process.returncode is not None:
            return None
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        return await self._process.wait()

    async def wait(self) -> int:
        """Return the exit code of the command when it has ended."""
        assert self._process is not None
        return await self._process.wait()


class BackfillChaos:
    """One run: events are published until a backfill, killed several times, is done."""

    def __init__(self, order: BackfillOrder, settings: Settings, folder: Path) -> None:
        self._order = order
        self._random = random.Random(order.seed)
        self._settings = settings
        self._store = backfill_features.store
        self._accounts = [f"account-{number}" for number in range(order.accounts)]
        self._published = dict.fromkeys(self._accounts, 0)
        self._is_over = asyncio.Event()
        features = str(FEATURES)
        self._workers = {
            f"worker {number}": Process(
                settings,
                folder / f"worker-{number}.log",
                *("worker", features, "--metrics-port", "0"),
            )
            for number in (1, 2)
        }
        self._backfill = Process(
            settings,
            folder / "backfill.log",
            *("backfill", "seen", "--switch", "--file", features),
            *("--processes", str(order.processes)),
        )
        self._kills: dict[str, int] = {}
        self._folder = Path(settings.home) / "backfills"
        self._has_reached = (
            self._is_begun,
            self._is_exported,
            self._is_installed,
            self._is_joining,
        )

    async def run(self) -> Findings:
        """Return what was found in the end."""
        async with opened(self._settings, self._store):
            publishing = asyncio.create_task(self._publish())
            try:
                await self._start_workers()
                await self._disturb()
                code = await self._finish()
            finally:
                self._is_over.set()
                await publishing
                for worker in self._workers.values():
                    await worker.end(signal.SIGTERM)
                await self._backfill.end(signal.SIGKILL)
            differences = [] if code == 0 else [f"the backfill ended with exit code {code}"]
            if not differences:
                differences = [text async for text in self._differences()]
        return Findings(sum(self._published.values()), self._kills, differences)

    async def _publish(self) -> None:
        """Publish events of all accounts until the backfill is done."""
        while not self._is_over.is_set():
            events = []
            for account in self._accounts:
                self._published[account] += 1
                event_id = f"{account}/{self._published[account]}"
                events.append(ServiceEvent("step", account, {}, event_id=event_id))
            await self._store.bus.publish_many(events)
            await asyncio.sleep(_PUBLISH_PAUSE)

    async def _start_workers(self) -> None:
        for worker in self._workers.values():
            await worker.start()

        async def are_at_work() -> bool:
            found = await self._store.get_feature("seen", self._accounts[0])
            return bool(found.count >= _BEFORE)

        assert await until(are_at_work, _PATIENCE_SECONDS)

    async def _disturb(self) -> None:
        """Kill the backfill in each of its phases, and workers at moments that the seed chooses."""
        for number in range(self._order.kills):
            if not await self._is_switched():
                await self._backfill.start()
            await until(self._has_reached[number % len(self._has_reached)], _PATIENCE_SECONDS)
            await asyncio.sleep(self._random.uniform(0.0, self._order.pause))
            await self._kill("backfill", self._backfill)
            name = self._random.choice(sorted(self._workers))
            if self._random.random() < _WORKER_SHARE:
                await self._kill(name, self._workers[name])
                await self._workers[name].start()

    async def _kill(self, name: str, process: Process) -> None:
        if await process.end(signal.SIGKILL) is not None:
            self._kills[name] = self._kills.get(name, 0) + 1

    async def _is_begun(self) -> bool:
        return len(await self._versions()) > 1

    async def _is_exported(self) -> bool:
        return await self._is_switched() or any(self._folder.glob("*/replay"))

    async def _is_installed(self) -> bool:
        return await self._is_switched() or any(self._folder.glob("*/installed"))

    async def _is_joining(self) -> bool:
        states = {version.state for version in (await self._versions())[1:]}
        return bool(states & {"joining", "ready", "active"})

    async def _versions(self) -> Sequence[FeatureVersion]:
        engine = await runtime_of(self._store).open()
        entry = (await engine.catalog.follow()).features.get("seen")
        return entry.versions if entry else ()

    async def _finish(self) -> int:
        """Let the backfill end; then let the workers handle all events."""
        code = 0
        while not await self._is_switched():
            await self._backfill.start()
            code = await self._backfill.wait()
            if code not in (0, -signal.SIGKILL):
                return code
        self._is_over.set()

        async def are_done() -> bool:
            return sum(lag.waiting for lag in await self._store.admin.lag()) == 0

        assert await until(are_done, _PATIENCE_SECONDS)
        return code

    async def _is_switched(self) -> bool:
        return any(version.activated_at for version in (await self._versions())[1:])

    async def _differences(self) -> AsyncIterator[str]:
        """Yield the differences to a store that had the feature from the first event on."""
        engine = await runtime_of(self._store).open()
        await engine.catalog.follow()
        series, offline = engine.registry.feature("seen").series, engine.backends.offline
        values = await self._store.get_features(["seen"], self._accounts)
        for account, count in self._published.items():
            last = [f"{account}/{n}" for n in range(max(1, count - _LAST + 1), count + 1)]
            found = values[account]["seen"]
            if (found.count, found.last) != (count, last):
                yield f"{account}: {found} is served after {count} events"
            (rows,) = await offline.rows(series, [account], limit=count + 1_000)
            counts = sorted(msgspec.json.decode(row.value)["count"] for row in rows)
            if counts != list(range(1, count + 1)):
                lost = set(range(1, count + 1)) - set(counts)
                more = len(counts) - len(set(counts))
                yield f"{account}: history lacks {sorted(lost)[:5]} and repeats {more} values"
        for letter in await self._store.dead_letters.list():
            yield f"dead letter: {letter.error}"
