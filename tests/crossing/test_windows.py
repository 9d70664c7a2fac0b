"""Random programs with windows: brute force = online = known = as of = recorded = replayed."""

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
from tests.crossing.window_steps import Step, drawn
from tests.crossing.window_world import World
from tests.effort import scaled
from tests.schemas import Schemas

pytestmark = pytest.mark.timeout(900)


async def run(program: Sequence[Step], chosen: Settings, *, number: int) -> None:
    """Run a program; some of them read exported history and are audited."""
    world = World(chosen)
    try:
        for step in program:
            await step.take(world)
            await world.observe()
        await world.check(exported=number % 4 == 0, audited=number % 4 == 1)
    finally:
        await world.store.close()


@pytest.fixture(autouse=True)
def quiet(log_to_stderr: None) -> None:
    """Log only what is wrong, because the log of all programs of a test is shown together."""
    log.configure("error", "auto")


def check_all(count: int, new_store: Open) -> None:
    random = Random("windows") if settings().derandomize else Random()
    for number in range(count):
        check(drawn(random), new_store, partial(run, number=number), f"number {number % 4}, ")


def test_windows_are_the_same_by_brute_force_online_and_in_history() -> None:
    @contextmanager
    def new_store() -> Iterator[Settings]:
        with TemporaryDirectory(prefix="hw-") as home:
            yield Settings().replace(home=f"{home}/store", partitions=2, record=PATIENT_RECORDS)

    check_all(scaled(14), new_store)


def test_windows_on_servers_are_the_same_by_brute_force_online_and_in_history(
    redis_url: str, postgres_url: str, schemas: Schemas
) -> None:
    @contextmanager
    def new_store() -> Iterator[Settings]:
        with TemporaryDirectory(prefix="hw-") as home, schemas.lent() as schema:
            yield on_servers(redis_url, postgres_url, schema).replace(
                home=f"{home}/store", partitions=2
            )

    check_all(scaled(6), new_store)
