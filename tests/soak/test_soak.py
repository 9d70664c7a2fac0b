"""The soak: it reports every kind of request, and judges errors and memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from soak import report
from soak.load import Tally
from soak.mix import kinds_of
from soak.run import Order, run
from soak.sampling import Sample
from soak.verdict import Findings, checks

MEGABYTE = 1 << 20
MEMORY = "memory, last quarter"
TOOTH = (0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 14, 5)
"""Memory that is used and given back, in megabytes, from one sample to the next."""


# The server starts before the load and handles its events after it.
@pytest.mark.timeout(240)
@pytest.mark.chaos
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(Order(seconds=3), id="embedded"),
        pytest.param(Order(seconds=2, on_servers=True), id="production"),
    ],
)
async def test_a_short_soak_has_no_errors_and_reports_every_kind_of_request(order: Order) -> None:
    found = await run(order)
    assert found.load.errors == {}
    assert found.waiting_events == 0
    assert found.load.latencies.keys() == {kind.name for kind in kinds_of(["c"])}
    assert found.load.rate == pytest.approx(0.7 * found.capacity)
    assert all(each.anonymous and each.descriptors for each in found.samples)
    text = report_of(found)
    assert all(kind.name in text for kind in kinds_of(["c"]))
    assert all(check.subject in text for check in checks(found))


def test_steady_memory_and_descriptors_are_kept() -> None:
    assert broken(findings(samples())) == []


def test_memory_that_grows_in_the_second_half_is_a_leak() -> None:
    assert broken(findings(samples(growth=MEGABYTE))) == [MEMORY]


def test_memory_that_grows_only_in_the_first_half_is_not_a_leak() -> None:
    first, second = samples(growth=MEGABYTE)[:20], samples(level=300 * MEGABYTE)[20:]
    assert broken(findings([*first, *second])) == []


@pytest.mark.parametrize("phase", range(len(TOOTH)))
def test_memory_that_goes_up_and_down_below_a_bound_is_not_a_leak(phase: int) -> None:
    filled = [min(100 + 2 * n, 160) for n in range(80)]
    assert broken(findings(shaped(sawtooth(filled, phase)))) == []


@pytest.mark.parametrize("phase", range(len(TOOTH)))
def test_a_slow_leak_under_a_sawtooth_is_found(phase: int) -> None:
    leaking = [min(100 + 2 * n, 160) + n for n in range(80)]
    assert broken(findings(shaped(sawtooth(leaking, phase)))) == [MEMORY]


def test_descriptors_that_grow_are_a_leak() -> None:
    assert broken(findings(samples(descriptors=2))) == ["descriptors, 2nd half"]


def test_a_failed_request_is_reported_with_its_kind_and_status() -> None:
    found = findings(samples())
    found.load.errors["search", "503"] += 2
    assert broken(found) == ["errors"]
    assert "2 x search: 503" in report_of(found)


def test_a_load_generator_that_takes_a_whole_core_voids_the_soak() -> None:
    found = findings(samples())
    found.load.cpu = found.load.seconds
    assert broken(found) == ["load generator"]


def test_events_that_are_not_handled_in_the_end_break_the_soak() -> None:
    found = findings(samples())._replace(waiting_events=3)
    assert broken(found) == ["events not handled"]


def test_requests_that_were_not_answered_in_time_break_the_soak() -> None:
    found = findings(samples())
    found.load.seconds *= 2
    assert broken(found) == ["requests answered"]


def samples(
    level: int = 100 * MEGABYTE, growth: int = 0, descriptors: int = 0, number: int = 40
) -> list[Sample]:
    return [
        Sample(float(n), 1, level + n * growth, level + n * growth, 50 + n * descriptors, 0, 0.001)
        for n in range(number)
    ]


def sawtooth(levels: Sequence[int], phase: int) -> list[int]:
    return [level + TOOTH[(n + phase) % len(TOOTH)] for n, level in enumerate(levels)]


def shaped(levels: Sequence[int]) -> list[Sample]:
    """Return samples of memory in megabytes."""
    return [
        sample._replace(anonymous=level * MEGABYTE)
        for sample, level in zip(samples(number=len(levels)), levels, strict=True)
    ]


def findings(taken: list[Sample]) -> Findings:
    load = Tally(seconds=10.0, cpu=1.0, rate=100.0)
    load.latencies["search"] = array("d", [0.001] * 1_000)
    return Findings(capacity=143.0, load=load, samples=taken, waiting_events=0)


def broken(found: Findings) -> list[str]:
    return [check.subject for check in checks(found) if not check.is_kept]


def report_of(found: Findings) -> str:
    console = Console(file=StringIO(), width=160)
    report.write(console, found)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()
