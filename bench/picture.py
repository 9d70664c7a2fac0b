"""The results as a picture: `python -m bench.picture FILE.svg` draws those of the last run.

Each row has the speed of ours and of a peer, as multiples of the floor, on a logarithmic scale.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from bench.__main__ import RESULTS
from bench.report import TIMES, Result, decoded

_ROW, _TOP, _LEFT, _RIGHT, _WIDTH = 22, 58, 360, 90, 960
_LOW, _HIGH = 0.02, 20.0
_MARKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
_ABOUT = "speed as a multiple of the bare work: medians, range"
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.small { font-size: 11px; fill: #777 }
.ours { fill: #2b5fd9 }
.peer { fill: #b0702a }
.spread { stroke: #2b5fd9; opacity: .45; stroke-width: 3 }
.grid { stroke: #ddd }
.floor { stroke: #777 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd }
  .small { fill: #999 }
  .grid { stroke: #333 }
  .ours { fill: #7ea2f5 }
  .spread { stroke: #7ea2f5 }
}
"""


def picture(results: Sequence[Result]) -> str:
    """Return the rows that have a floor as SVG."""
    rows = [each for each in results if each.ours and each.floor]
    height = _TOP + _ROW * len(rows) + 12
    body = "\n".join(
        [*_scale(height), *(part for n, row in enumerate(rows) for part in _row(row, n))]
    )
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return f"{head}\n<style>{_STYLE}</style>\n{body}\n</svg>\n"


def _scale(height: int) -> Iterator[str]:
    yield _dot("ours", _LEFT, 16)
    yield _text(_LEFT + 10, 20, "Headwater")
    yield _dot("peer", _LEFT + 100, 16)
    yield _text(_LEFT + 110, 20, "another product")
    yield _text(_LEFT + 220, 20, _ABOUT, "small")
    for mark in _MARKS:
        x = _x(mark)
        yield _line("floor" if mark == 1 else "grid", (x, _TOP - 10), (x, height - 12))
        yield _text(x, _TOP - 16, f"{mark:g}", "small", "middle")


def _row(row: Result, number: int) -> Iterator[str]:
    assert row.ours
    assert row.floor
    y = _TOP + _ROW * number + 8
    yield _text(_LEFT - 12, y + 4, row.case, anchor="end")
    ours = _speed(row, row.ours.value / row.floor.value)
    if (spread := row.floor_spread) is not None:
        ours = _speed(row, spread.median)
        yield _line("spread", (_x(_speed(row, spread.low)), y), (_x(_speed(row, spread.high)), y))
    if row.peer:
        yield _dot("peer", _x(_speed(row, row.peer.value / row.floor.value)), y, row.peer_is)
    yield _dot("ours", _x(ours), y, f"{ours:.2f} of {row.floor_is}")
    yield _text(_WIDTH - _RIGHT + 14, y + 4, f"{ours:.2f}", "small")


def _speed(row: Result, ratio: float) -> float:
    """Return a ratio to the floor as that of speeds: less time is more of it."""
    return 1 / ratio if row.unit in TIMES else ratio


def _x(speed: float) -> float:
    part = math.log(min(max(speed, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return round(_LEFT + part * (_WIDTH - _LEFT - _RIGHT), 1)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _dot(kind: str, x: float, y: float, title: str = "") -> str:
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="5"><title>{escape(title)}</title></circle>'


def _line(kind: str, begin: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = begin, end
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description=__doc__)
    parser.add_argument("file", type=Path)
    target: Path = parser.parse_args().file
    target.write_text(picture(decoded(RESULTS.read_bytes())), encoding="utf-8")


if __name__ == "__main__":
    main()
