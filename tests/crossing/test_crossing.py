"""Random programs: what was served is what is known, replayed and audited, whatever came after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings

from headwater.core.logging import log
from headwater.settings.schema import Settings
from tests.conftest import PATIENT_RECORDS, on_servers
from tests.crossing.steps import EXTENTS, THEMES, Step, programs
from tests.crossing.world import Extent, World
from tests.schemas import Schemas

# Forty whole stores, on a busy machine.
pytestmark = pytest.mark.timeout(900)

EXAMPLES = settings().max_examples * 4 // 5
"""Programs of each theme: forty, or with ``--hypothesis-profile=explore`` eight hundred."""

Open = Callable[[], AbstractContextManager[Settings]]
"""Returns the settings of an empty store."""


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


def failure(program: Sequence[Step], new_store: Open, extent: Extent) -> Exception | None:
    """Return why a program fails; None if it does not."""
    with new_store() as chosen:
        try:
            asyncio.run(run(program, chosen, extent))
        except Exception as error:  # noqa: BLE001 - each is a failure of the program
            return error
    return None


def check(program: Sequence[Step], new_store: Open, extent: Extent) -> None:
    """Run a program; if it fails, leave out the steps without which it fails as well.

    Hypothesis would look for a shorter one for five minutes.
    """
    found = failure(program, new_store, extent)
    if found is None:
        return
    needed = list(program)
    for step in program:
        rest = [each for each in needed if each is not step]
        if rest and (other := failure(rest, new_store, extent)) is not None:
            needed, found = rest, other
    lines = "".join(f"    {step!r},\n" for step in needed)
    raise AssertionError(f"{found}\nwith extent {extent!r} and the program [\n{lines}]") from found


@pytest.fixture(autouse=True)
def quiet(log_to_stderr: None) -> None:
    """Log only what is wrong, because the log of all programs of a test is shown together."""
    log.configure("error", "auto")


def check_all(theme: str, examples: int, new_store: Open) -> None:
    @settings(max_examples=examples, phases=[Phase.generate])
    @given(programs(theme), EXTENTS)
    def check_one(program: Sequence[Step], extent: Extent) -> None:
        check(program, new_store, extent)

    check_one()


@pytest.mark.parametrize("theme", THEMES)
def test_what_was_served_stays_known_replayed_and_audited(theme: str) -> None:
    @contextmanager
    def new_store() -> Iterator[Settings]:
        with TemporaryDirectory(prefix="hw-") as home:
            yield Settings().replace(home=home, partitions=2, record=PATIENT_RECORDS)

    check_all(theme, EXAMPLES, new_store)


def test_what_was_served_on_servers_stays_known_replayed_and_audited(
    redis_url: str, postgres_url: str, schemas: Schemas
) -> None:
    @contextmanager
    def new_store() -> Iterator[Settings]:
        with TemporaryDirectory(prefix="hw-") as home, schemas.lent() as schema:
            yield on_servers(redis_url, postgres_url, schema).replace(home=home, partitions=2)

    check_all("everything", EXAMPLES // 2, new_store)
