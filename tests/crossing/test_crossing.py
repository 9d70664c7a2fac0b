"""Random programs: what was served is what is known, replayed and audited, whatever came after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from headwater.core.logging import log
from headwater.settings.schema import Settings
from tests.conftest import PATIENT_RECORDS, on_servers
from tests.crossing.programs import Open, check
from tests.crossing.steps import THEMES, Step, drawn
from tests.crossing.world import Extent, World
from tests.schemas import Schemas

# Fifty whole stores, on a busy machine.
pytestmark = pytest.mark.timeout(900)

PROGRAMS = settings().max_examples
"""Programs of each theme: fifty, in `make test` ten, or with the profile ``explore`` a thousand."""

EXTENTS: Sequence[Extent] = ("everything", "events", "time", "exported", "events", "time", "events")
"""What programs compare in turn: rarely everything, which takes long."""


async def run(program: Sequence[Step], chosen: Settings, extent: Extent) -> None:
    """Run a program; everything that is observed must agree."""
    world = World(chosen)
    try:
        for step in program:
            await step.take(world)
            await world.observe()
        await world.check(extent)
    finally:
        await world.store.close()


@pytest.fixture(autouse=True)
def quiet(log_to_stderr: None) -> None:
    """Log only what is wrong, because the log of all programs of a test is shown together."""
    log.configure("error", "auto")


def check_all(theme: str, count: int, new_store: Open) -> None:
    random = Random(theme) if settings().derandomize else Random()
    for number in range(count):
        extent = EXTENTS[number % len(EXTENTS)]
        check(drawn(theme, random), new_store, partial(run, extent=extent), f"extent {extent!r}, ")


@pytest.mark.parametrize("theme", THEMES)
def test_what_was_served_stays_known_replayed_and_audited(theme: str) -> None:
    @contextmanager
    def new_store() -> Iterator[Settings]:
        with TemporaryDirectory(prefix="hw-") as home:
            yield Settings().replace(home=f"{home}/store", partitions=2, record=PATIENT_RECORDS)

    check_all(theme, PROGRAMS, new_store)


def test_what_was_served_on_servers_stays_known_replayed_and_audited(
    redis_url: str, postgres_url: str, schemas: Schemas
) -> None:
    @contextmanager
    def new_store() -> Iterator[Settings]:
        with TemporaryDirectory(prefix="hw-") as home, schemas.lent() as schema:
            yield on_servers(redis_url, postgres_url, schema).replace(
                home=f"{home}/store", partitions=2
            )

    check_all("everything", PROGRAMS // 2, new_store)
