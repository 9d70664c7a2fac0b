"""A Redis that is restored from an older snapshot, and what its operator does then."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path

from chaos.fleet import environment
from chaos.oracle import Letter, expect, named, rejected
from chaos.producer import Intruder, Ledger, Producer
from chaos.waiting import until
from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError, StoreLostError
from tests.servers import Machine

ALL_FEATURES = Path(__file__).with_name("all_features.py")
_EVENTS_AFTER = 300
_SECONDS_AFTER = 3.0
_NOTICED_WITHIN_SECONDS = 30.0
_BATCH = 30
_MOST_LETTERS = 1_000_000


class Restore:
    """Puts a Redis back to a state of some seconds ago.

    What only Redis had is lost then. As the guide of backups says, values are restored from
    history, and the events since the snapshot are published again, with their ids.
    """

    def __init__(
        self,
        store: FeatureStore,
        ledger: Ledger,
        producers: Sequence[Producer],
        intruder: Intruder,
        folder: Path,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._producers = producers
        self._intruder = intruder
        self._folder = folder
        self._copy = folder / "snapshot"
        self.uncertain: set[Letter] = set()
        """Dead letters that may be gone, as they are in Redis alone, or written twice."""
        self.published_again = 0
        self.violations: list[str] = []

    async def run(self, machine: Machine) -> None:
        """Make a snapshot, let more events come, and start the server with the snapshot."""
        files = machine.folder / "appendonlydir"
        letters = set(map(named, await self._store.dead_letters.list(limit=_MOST_LETTERS)))
        # Before the snapshot: what is acknowledged as soon as the server runs on is not in it.
        begin = self._ledger.count
        await asyncio.to_thread(self._make_snapshot, machine, files)
        await self._more_events(begin + _EVENTS_AFTER)
        await (await runtime_of(self._store).open()).backends.offline.maintain()
        async with AsyncExitStack() as stack:
            for producer in self._producers:
                await stack.enter_async_context(producer.publishing)
            await asyncio.to_thread(machine.kill)
            shutil.rmtree(files)
            self._copy.rename(files)
            await asyncio.to_thread(machine.start)
            if not await until(self._is_refused, _NOTICED_WITHIN_SECONDS):
                self.violations.append("nobody noticed that Redis is an older copy")
            await self._rebuild()
            written = expect(self._ledger.steps()).letters + rejected(self._intruder.sent)
            self.uncertain |= set(written) - letters
            steps = islice(self._ledger.steps(), begin, None)
            while batch := [*islice(steps, _BATCH)]:
                known = await self._producers[0].publish(batch)
                self.published_again += known.count(False)

    async def _rebuild(self) -> None:
        """Run the command that restores the values of all features from history."""
        command = ("-m", "headwater", "rebuild", str(ALL_FEATURES), "--adopt")
        with (self._folder / "rebuild.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *command),
                cwd=self._folder,
                env=environment(self._store.settings),
                stdout=log,
                stderr=log,
            )
        if code := await process.wait():
            self.violations.append(f"rebuild --adopt ended with exit code {code}")

    def _make_snapshot(self, machine: Machine, files: Path) -> None:
        machine.freeze()  # no file changes, and the last command may be there in part
        subprocess.run(["cp", "-a", files, self._copy], check=True)  # also their owner
        machine.thaw()

    async def _more_events(self, count: int) -> None:
        async def are_published() -> bool:
            return self._ledger.count >= count

        await until(are_published, _SECONDS_AFTER)

    async def _is_refused(self) -> bool:
        accounts = [f"account-{number}" for number in range(50)]
        try:
            await self._store.get_features(["chain"], accounts)
        except StoreLostError:
            return True
        except BackendError:
            pass  # its connections were closed
        return False
