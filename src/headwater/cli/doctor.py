"""`headwater doctor`: examine an installation, and say what to do about each problem."""

import asyncio
import shutil
import sys
import textwrap
from collections import Counter
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import get_args

import typer

from headwater.cli.options import AsJson, StoreOption, bare_or_remote
from headwater.cli.output import print_json
from headwater.core.short_repr import printable_lines
from headwater.doctor.examination import examine
from headwater.errors import HeadwaterError
from headwater.model.health import Examination, Finding, Findings, Severity
from headwater.settings.loading import FILE
from headwater.store.feature_store import FeatureStore

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXIT_CODES: dict[Severity, int] = {"ok": 0, "unknown": 0, "warning": 1, "error": 2}

_COLOURS = {"ok": "green", "unknown": "blue", "warning": "yellow", "error": "red"}
_MARK_WIDTH = 9
_CHECK_WIDTH = 18
_WIDEST = 120


@app.command()
def doctor(*, file: StoreOption = None, as_json: AsJson = False) -> None:
    """Examine configuration, installation, servers and workload of a store.

    Exits with 0 if all is well, with 1 after warnings and with 2 after errors.
    """
    examination = asyncio.run(_examine(file))
    if as_json:
        print_json(examination)
    else:
        print_examination(examination)
    raise typer.Exit(EXIT_CODES[examination.status])


async def _examine(file: Path | None) -> Examination:
    try:
        store = bare_or_remote(file)
    except HeadwaterError as error:
        place = str(file or f"{FILE} and HEADWATER_ variables")
        return _failure("configuration", "settings", error, place)
    if isinstance(store, FeatureStore):
        try:
            # Not opened here: the store may be the problem.
            return await examine(store)
        finally:
            await store.close()
    try:
        async with store:
            return await store.admin.doctor()
    except HeadwaterError as error:
        return _failure("server", "request", error, store.url)


def _failure(area: str, check: str, error: HeadwaterError, place: str) -> Examination:
    """Return the examination of an installation that has nothing else to examine."""
    report = Findings(area, place)
    report.error(
        check, printable_lines(str(error)), "correct this first; nothing else could be examined"
    )
    return Examination("error", report.all)


def print_examination(examination: Examination) -> None:
    """Print the findings of each area, and a summary."""
    # Only on a terminal: a wrapped line cannot be searched, and its commands cannot be copied.
    is_terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, _WIDEST) if is_terminal else sys.maxsize
    for area, group in groupby(examination.findings, attrgetter("area")):
        findings = list(group)
        place, _ = Counter(finding.looked_at for finding in findings).most_common(1)[0]
        typer.echo(typer.style(area.capitalize(), bold=True) + f" ({place})")
        for finding in findings:
            _print_finding(finding, place, width)
        typer.echo()
    counts = Counter(finding.severity for finding in examination.findings)
    typer.echo(", ".join(f"{counts[severity]} {severity}" for severity in get_args(Severity)) + ".")


def _print_finding(finding: Finding, place: str, width: int) -> None:
    mark = typer.style(f"{finding.severity:<{_MARK_WIDTH}}", fg=_COLOURS[finding.severity])
    indent = " " * (2 + _MARK_WIDTH + _CHECK_WIDTH)
    looked_at = "" if finding.looked_at == place else f" ({finding.looked_at})"
    lines = [f"{finding.found}{looked_at}"]
    lines += [f"→ {finding.remedy}"] if finding.remedy else []
    text = "\n".join(
        textwrap.fill(
            *(line, width),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
    typer.echo(f"  {mark}{finding.check + ' ':<{_CHECK_WIDTH}}{text[len(indent) :]}")
