"""A rolling restart of workers under load, as a measure."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.case import Effort
from bench.floors import Measuring, Rate
from chaos.rolling import rolling_restart
from headwater.settings.loading import load


@contextmanager
def gap(where: str, effort: Effort) -> Iterator[Rate]:
    """Seconds that events of a partition wait while workers are restarted one by one, p95."""
    settings, workers = load(), effort.of(4, 4, 1)
    yield lambda: asyncio.run(rolling_restart(settings, Path(where), workers)).p95


MEASURES: dict[str, Measuring] = {"gap": gap}
