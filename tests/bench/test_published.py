"""What the page about speed says of the benchmarks."""

from __future__ import annotations

import re
from datetime import date

from bench import publish
from bench.case import Figure, Spread
from bench.cases import CASES
from bench.report import Result, Run

ROW = Result(
    case="redis worker",
    unit="events/s",
    ours=Figure(9_000),
    floor=Figure(12_000),
    floor_is="a script",
    peer=Figure(500),
    peer_is="Another 1.0",
    ours_to_floor=0.75,
    ours_to_peer=18.0,
    targets={"\u2265 0.75 x floor": True, "\u2265 20 x peer": False},
    rounds={},
    failures={},
    floor_spread=Spread(0.7, 0.6, 0.8),
)


def test_a_published_run_is_a_table_and_a_picture() -> None:
    run = Run(date(2026, 11, 18), "d870e1d4", "a machine", [ROW])
    texts = publish.written(run)
    page = texts[publish.PAGE]
    cells = ("redis worker, events/s", "9,000", "12,000", "0.75", "0.70 (0.60\u20130.80)")
    verdict = "\u2265 0.75 x floor; **missed:** \u2265 20 x peer"
    assert f"| {' | '.join([*cells, 'Another 1.0: 500', '18.00', verdict])} |" in page
    assert "On 18 November 2026, at commit d870e1d4: a machine." in page
    assert page.partition("<!-- measured -->")[0] in publish.PAGE.read_text(encoding="utf-8")
    assert "redis worker" in texts[publish.PICTURE]


def test_every_row_is_explained() -> None:
    page = publish.PAGE.read_text(encoding="utf-8")
    explained = page.partition("<!-- measured -->")[0]
    cells = re.findall(r"^\| (.+?) \|", explained, re.M)
    assert not [case.name for case in CASES if not any(_names(cell, case.name) for cell in cells)]


def _names(cell: str, case: str) -> bool:
    """Return whether a cell is the name of a row, or has it with `\u2026` for any text."""
    return re.fullmatch(re.escape(cell).replace("\u2026", ".+"), case) is not None
