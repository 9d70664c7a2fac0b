"""A home with a lake in a folder, for tests of internals."""

from __future__ import annotations

from pathlib import Path

from headwater.backends.lake.store import LakeOfflineStore, catalog_in_home, open_catalog
from headwater.backends.runners.inline import InlineRunner
from headwater.core.clock import SystemClock
from headwater.ports import LakeTail
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import Embedded

SEGMENT_ROWS = 10


def settings_of(folder: Path) -> Settings:
    """Return the settings of a home and a lake in one folder."""
    return Settings().replace(
        home=folder / "home",
        partitions=4,
        offline={"segment_rows": SEGMENT_ROWS},
        lake={"url": str(folder / "lake")},
    )


def lake_of(folder: Path, parts: Embedded, tail: LakeTail | None = None) -> LakeOfflineStore:
    """Open the lake over the tail of a home."""
    settings = settings_of(folder)
    store = LakeOfflineStore(
        tail or parts.tail,
        settings.lake,
        open_catalog(settings.lake, catalog_in_home(parts.home.path)),
        parts.home.scratch,
        SystemClock(),
        settings.offline,
        InlineRunner(),
    )
    store.create()
    return store
