"""Publish the last full run: `python -m bench.publish` keeps it, and writes its table and picture.

`docs/explanation/speed.md` has the table between two markers, and the picture beside it.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.__main__ import RESULTS
from bench.case import Figure, Spread
from bench.cases import CASES
from bench.picture import picture
from bench.process import ROOT
from bench.report import NOTHING, Result, Run, decoded, number

PUBLISHED = ROOT / "bench" / "published.json"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
PICTURE = ROOT / "docs" / "pictures" / "speed.svg"
_HEADINGS = (
    *("row", "Headwater", "floor", "÷ floor", "median (least–greatest)"),
    *("other product", "÷ it", "targets"),
)
_ABOUT = (
    "The figures and the first ratio are of the best rounds; then come the ratio of the medians, "
    "and the least and the greatest of one round. Of units of time, less is better."
)
_MEASURED = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.S)


def written(run: Run) -> dict[Path, str]:
    """Return the text of every file that shows a run."""
    page = PAGE.read_text(encoding="utf-8")
    table = "\n".join(["", *_lines(run), "", ""])
    return {
        PAGE: _MEASURED.sub(lambda _: table, page),
        PICTURE: picture(run.results),
    }


def _lines(run: Run) -> Iterator[str]:
    yield f"On {run.day:%d %B %Y}, at commit {run.commit}: {run.machine}. {_ABOUT}"
    yield ""
    yield f"![Each row as a multiple of its floor]({os.path.relpath(PICTURE, PAGE.parent)})"
    yield ""
    yield f"| {' | '.join(_HEADINGS)} |"
    yield "|" + "---|" * len(_HEADINGS)
    for row in run.results:
        cells = (
            f"{row.case}, {row.unit}",
            _figure(row.ours, row.unit),
            _figure(row.floor, row.unit),
            _times(row.ours_to_floor),
            _spread(row.floor_spread),
            f"{row.peer_is}: {_figure(row.peer, row.unit)}" if row.peer else "",
            _times(row.ours_to_peer),
            _verdict(row),
        )
        yield f"| {' | '.join(cells)} |"


def _figure(figure: Figure | None, unit: str) -> str:
    if figure is None:
        return NOTHING
    p99 = f", p99 {figure.detail['p99_ms']:.1f}" if "p99_ms" in figure.detail else ""
    return number(figure.value, unit) + p99


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _spread(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f} ({spread.low:.2f}–{spread.high:.2f})"


def _verdict(row: Result) -> str:
    missed = [text for text, met in row.targets.items() if met is False]
    kept = [text for text, met in row.targets.items() if met]
    return "; ".join([*kept, *(f"**missed:** {text}" for text in missed)]) or "reported"


def _machine() -> str:
    bits = f"{platform.system()} on {platform.machine()} with {os.cpu_count()} cores"
    return f"{bits}, Python {platform.python_version()}"


def main() -> None:
    results = decoded(RESULTS.read_bytes())
    if missing := {case.name for case in CASES} - {row.case for row in results}:
        sys.exit(f"the last run was not of all cases: {', '.join(sorted(missing))} missing")
    if failed := [row.case for row in results if row.ours is None]:
        sys.exit(f"the last run failed: {', '.join(failed)}")
    ran = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    day = datetime.fromtimestamp(RESULTS.stat().st_mtime, UTC).date()
    run = Run(day, ran.stdout.strip(), _machine(), results)
    PUBLISHED.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")
    for file, text in written(run).items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
