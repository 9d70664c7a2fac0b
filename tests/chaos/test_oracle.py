"""The oracle of a chaos run finds events that were lost, doubled or reordered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from chaos import second_group
from chaos.fleet import SECOND_GROUP
from chaos.oracle import FIRST_GROUP, Oracle, Tally, Verdict, expect
from chaos.plan import Step
from chaos.producer import Intruder, Ledger
from chaos.run import opened
from headwater import FeatureStore, ServiceEvent
from headwater.settings.schema import Settings

pytestmark = pytest.mark.chaos

STEPS = [Step(f"e{number}", "step", "a", {"number": number}) for number in range(1, 6)]

Stores = tuple[FeatureStore, FeatureStore]


@pytest.fixture
async def stores(home: Path) -> AsyncIterator[Stores]:
    """The embedded store of both consumer groups."""
    settings = Settings().replace(home=home, partitions=4)
    other = settings.replace(worker={"consumer_group": SECOND_GROUP})
    async with opened(settings) as first, opened(other, second_group.store) as second:
        yield first, second


async def handle(stores: Stores, steps: Sequence[Step]) -> None:
    """Publish events and run the features of both groups."""
    first, second = stores
    for step in steps:
        event = ServiceEvent(step.event_type, step.entity_id, step.payload, event_id=step.event_id)
        await first.bus.publish(event)
        await first.drain()
        await second.drain()


async def judged(stores: Stores, home: Path, steps: Sequence[Step], required: int = 1) -> Verdict:
    with Ledger(home / "acknowledged.jsonl") as ledger:
        intruder = Intruder(stores[0], ledger, seed=1)
        oracle = Oracle(*stores, expect(steps), {"a": required}, is_cluster=False)
        return await oracle.judge(intruder)


def lines(verdict: Verdict) -> dict[str, Tally]:
    return {name.partition(": ")[2]: tally for name, tally in verdict.tallies.items()}


async def test_events_that_were_handled_once_and_in_order_are_no_violation(
    stores: Stores, home: Path
) -> None:
    await handle(stores, STEPS)
    verdict = await judged(stores, home, STEPS)
    assert set(lines(verdict)) == {
        *("chain", "seen", "given", "noted", "documents of noted", "filled", "deployed", "stepped")
    }
    assert all(tally == Tally() for tally in verdict.tallies.values())
    assert [each for each in verdict.violations if "circuit breaker" not in each] == []


async def test_a_lost_event_is_counted_for_each_feature_and_group(
    stores: Stores, home: Path
) -> None:
    await handle(stores, [step for step in STEPS if step.event_id != "e3"])
    verdict = lines(await judged(stores, home, STEPS))
    assert verdict["chain"] == verdict["seen"] == Tally(lost=1)
    # The run begins after the lost event, so the events before it do not count.
    assert verdict["deployed"] == Tally(lost=3)


async def test_an_event_that_only_the_new_feature_missed_is_found_if_it_was_required(
    stores: Stores, home: Path
) -> None:
    await handle(stores, STEPS)
    await stores[0].set_feature("deployed", "a", (4, 5))
    assert lines(await judged(stores, home, STEPS, required=4))["deployed"] == Tally()
    assert lines(await judged(stores, home, STEPS, required=3))["deployed"] == Tally(lost=1)


async def test_a_dead_letter_may_be_missing_only_if_a_restore_has_lost_it(
    stores: Stores, home: Path
) -> None:
    steps = [*STEPS, Step("bad", "raise", "a", {"number": 6})]
    await handle(stores, STEPS)
    letter = (FIRST_GROUP, "bad", "raises")
    missing = "no dead letter of bad for raises in headwater_workers"
    for uncertain, is_missing in (((), True), ({letter}, False)):
        with Ledger(home / "acknowledged.jsonl") as ledger:
            oracle = Oracle(*stores, expect(steps), {}, is_cluster=False, uncertain=uncertain)
            verdict = await oracle.judge(Intruder(stores[0], ledger, seed=1))
        assert (missing in verdict.violations) == is_missing


async def test_reordered_events_are_found(stores: Stores, home: Path) -> None:
    await handle(stores, [STEPS[0], STEPS[2], STEPS[1], STEPS[3], STEPS[4]])
    verdict = lines(await judged(stores, home, STEPS))
    assert verdict["chain"] == verdict["seen"] == Tally(reordered=1)
    assert verdict["deployed"] != Tally()


async def test_a_document_of_another_event_or_without_a_chunk_is_found(
    stores: Stores, home: Path
) -> None:
    steps = [*STEPS, *(Step(f"n{number}", "note", "a", {}) for number in range(3))]
    await handle(stores, steps)
    verdict = await judged(stores, home, steps)
    assert lines(verdict)["noted"] == lines(verdict)["documents of noted"] == Tally()
    assert not any("document" in each or "chunk" in each for each in verdict.violations)
    lost = await judged(stores, home, [*steps, Step("n3", "note", "a", {})])
    assert lines(lost)["documents of noted"] == Tally(lost=1)
    swapped = await judged(stores, home, [*steps[:-2], steps[-1], steps[-2]])
    assert lines(swapped)["documents of noted"] == Tally(reordered=1)
    await stores[0].index("notes", "b", "A note that no event has left.")
    mixed = await judged(stores, home, steps)
    assert any("the chunks of the index" in each for each in mixed.violations)


async def test_an_open_or_closed_circuit_breaker_shows_in_the_attempts(
    stores: Stores, home: Path
) -> None:
    kinds = ["broken"] * 12 + ["mended"] + ["relapse"]
    steps = [Step(f"e{n}", kind, "a", {"number": n}) for n, kind in enumerate(kinds, 1)]
    await handle(stores, steps)
    verdict = await judged(stores, home, steps)
    assert (verdict.breaker.opened, verdict.breaker.closed) == (2, 1)
    assert verdict.violations == []
    assert verdict.letters_found == 13
