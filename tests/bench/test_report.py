"""The report of the benchmarks: how much a ratio varies, and two runs side by side."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from xml.etree import ElementTree

import msgspec
from rich.console import Console

from bench import report
from bench.case import Case, Effort, Figure, Figures, Measure, Outcome, Spread
from bench.picture import picture

_SVG = "{http://www.w3.org/2000/svg}"


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
    assert "SLOWER" not in shown


def test_a_row_is_slower_if_all_its_rounds_were() -> None:
    before = report.result(outcome([40, 50], [100, 100]))
    overlapping = report.result(outcome([30, 45], [100, 100]))
    slower = report.result(outcome([30, 35], [100, 100]))
    in_seconds = [msgspec.structs.replace(row, unit="s") for row in (before, slower)]
    written = StringIO()

    Console(width=150, file=written).print(report.comparison([before], [slower]))

    assert "SLOWER" in written.getvalue()
    assert report.has_slower([before], [overlapping, slower])
    assert not report.has_slower([before], [overlapping])
    assert not report.has_slower(in_seconds[:1], in_seconds[1:]), "less time is no loss"
    assert report.has_slower(in_seconds[1:], in_seconds[:1])


def test_the_picture_has_each_row_with_its_peer_where_they_belong() -> None:
    rows = [
        report.result(outcome([50, 50], [100, 100])),
        msgspec.structs.replace(
            report.result(outcome([4], [2])),
            case="start",
            unit="s",
            peer=Figure(8),
            peer_is="X & Y",
        ),
    ]
    drawn = ElementTree.fromstring(picture(rows))
    dots = [(dot.get("class"), float(dot.get("cx", 0))) for dot in drawn.iter(f"{_SVG}circle")]
    _, _, rate, peer, time = dots  # the first two are the legend's
    assert rate == time, "half the floor's rate, and twice its time"
    assert peer[0] == "peer"
    assert peer[1] < time[1]
