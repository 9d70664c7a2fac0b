"""Nothing is lost, doubled or reordered when processes and servers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import plan
from chaos.report import violations
from chaos.run import Order, run

# The faults and calls take their time on a machine that has other tests to run;
# `make chaos` has the machine for itself and keeps to the promised bound.
MOST_TIMEOUTS = 5.0


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_every_acknowledged_event_takes_effect_once_and_in_order_despite_crashes(
    tmp_path: Path,
) -> None:
    report = await run(
        Order(seed=7, events=4_000, workers=3, seconds=5, most_timeouts=MOST_TIMEOUTS), tmp_path
    )
    assert violations(report) == []
    assert report.acknowledged == 4_000
    assert report.faults.keys() == {*plan.ON_SERVER, "new feature deployed"}
    assert report.deployed > 0


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "options",
    [{"cluster": True}, {"cluster": True, "declared_keys": True}, {"sentinel": True}],
    ids=["cluster", "declared keys", "sentinel"],
)
async def test_every_acknowledged_event_takes_effect_once_and_in_order_despite_failovers(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    order = Order(seed=7, events=2_000, workers=2, seconds=5, most_timeouts=MOST_TIMEOUTS)._replace(
        **options
    )
    report = await run(order, tmp_path)
    assert violations(report) == []
    assert report.acknowledged == 2_000
    assert report.faults.keys() == {*plan.ON_CLUSTER, "new feature deployed"}


def test_a_seed_gives_the_same_plan_again(tmp_path: Path) -> None:
    def planned(seed: int) -> object:
        lanes = range(plan.LANES)
        batches = [list(plan.batches(seed, 2_000, lane, tmp_path)) for lane in lanes]
        return batches, plan.faults(seed, 2_000, 3)

    assert planned(1) == planned(1)
    assert planned(1) != planned(2)


def test_a_plan_has_every_kind_of_event_and_each_account_in_one_lane(tmp_path: Path) -> None:
    lanes = [
        [step for batch in plan.batches(3, 20_000, lane, tmp_path) for step in batch]
        for lane in range(plan.LANES)
    ]
    steps = [step for lane in lanes for step in lane]
    assert len({step.event_id for step in steps}) == len(steps) == 20_000
    assert {step.event_type for step in steps} >= {"slow", "flaky", "raise", "hang", "gift", "coin"}
    assert {step.event_type for step in steps} >= {"stick", "block", "exit", "kill", *plan.SPAN}
    accounts = [{step.entity_id for step in lane if "number" in step.payload} for lane in lanes]
    assert sum(map(len, accounts)) == len(set().union(*accounts))
