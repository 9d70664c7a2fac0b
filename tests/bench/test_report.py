"""The report of the benchmarks: how much a ratio varies, and two runs side by side."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

from rich.console import Console

from bench import report
from bench.case import Case, Effort, Figure, Figures, Measure, Outcome, Spread


@contextmanager
def never(effort: Effort) -> Iterator[Measure]:
    yield lambda: Figure(1)


def outcome(
    ours: list[float], floor: list[float], failures: dict[str, str] | None = None
) -> Outcome:
    case = Case(name="worker", unit="events/s", ours=never, floor=never)
    figures = Figures(Figure(max(ours)), Figure(max(floor)))
    return Outcome(case, figures, {"ours": ours, "floor": floor}, failures or {})


def test_a_spread_is_of_rounds_that_were_measured_together() -> None:
    measured = outcome([50, 20, 40], [100, 50, 50])

    assert measured.figures.of_floor == 0.5
    assert measured.spread("floor") == Spread(median=0.8, low=0.4, high=0.8)


def test_a_contestant_that_failed_has_no_spread() -> None:
    assert outcome([50, 20], [100], {"floor": "it ended"}).spread("floor") is None
    assert outcome([50], [100]).spread("peer") is None


def test_results_are_read_as_they_were_written_and_compared() -> None:
    before = report.decoded(report.encoded([outcome([40, 50], [100, 100])]))
    after = report.decoded(report.encoded([outcome([80, 70], [100, 100])]))
    written = StringIO()

    Console(width=150, file=written).print(report.comparison(before, after))

    assert before == [report.result(outcome([40, 50], [100, 100]))]
    shown = written.getvalue()
    assert "0.45 (0.40-0.50)" in shown
    assert "0.75 (0.70-0.80)" in shown
