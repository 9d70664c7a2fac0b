"""The rows of a frame's history in a lake on a folder, which the embedded store reads."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

from bench.history_scale import POINTS, Size, columns
from headwater.backends.duckdb.exported_history import ExportedHistory
from headwater.backends.lake.store import LakeOfflineStore, catalog_in_home, open_catalog
from headwater.backends.runners.choice import runner_of
from headwater.backends.sqlite.environment import SqliteEnvironment
from headwater.core.clock import SystemClock
from headwater.ports import FrameQuery
from headwater.settings.schema import Settings


class LakeHistory:
    """A lake with the rows of a folder, made once; it answers the folder's frame."""

    def __init__(self, folder: Path, size: Size) -> None:
        home, clock = folder / "home", SystemClock()
        settings = Settings().replace(home=home, lake={"url": str(folder / "lake")})
        self._query = FrameQuery(folder / POINTS, columns(size))
        with (folder / "lake.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            is_new = not home.exists()
            self._home = SqliteEnvironment(settings, clock)
            self._store = LakeOfflineStore(
                self._home.tail,
                settings.lake,
                open_catalog(settings.lake, catalog_in_home(home)),
                self._home.home.scratch,
                clock,
                settings.offline,
                runner_of(settings.runner, of_frames=True),
            )
            if is_new:
                self._store.create()
                for segment in ExportedHistory(folder).manifest().live:
                    self._home.tail.add(segment)
                self._store.adopt(self._home.tail, folder)

    def answer(self, answer: Path) -> None:
        """Answer the frame, from looking up the table on."""
        asyncio.run(self._store.read_frame(self._query, answer))
