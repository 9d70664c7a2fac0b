"""`headwater doctor`: examine an installation, and say what to do about each problem."""

import asyncio
import shutil
import textwrap
from collections import Counter
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import get_args

import typer

from headwater.api.doctor import Examination
from headwater.cli.options import AsJson, StoreOption, bare_store
from headwater.cli.output import print_json
from headwater.cli.remote import server_of
from headwater.core.findings import Finding, Severity
from headwater.doctor.examination import examine

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
    server = server_of(file)
    if server is not None:
        async with server:
            return await server.admin.doctor()
    store = bare_store(file)
    try:
        # Not opened here: the store may be the problem.
        return await examine(store)
    finally:
        await store.close()


def print_examination(examination: Examination) -> None:
    """Print the findings of each area, and a summary."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    for area, group in groupby(examination.findings, attrgetter("area")):
        findings = list(group)
        place, _ = Counter(finding.looked_at for finding in findings).most_common(1)[0]
        typer.echo(typer.style(area.capitalize(), bold=True) + f" ({place})")
        for finding in findings:
            _print_finding(finding, place, width)
        typer.echo()
    counts = Counter(finding.severity for finding in examination.findings)
    typer.echo(", ".join(f"{counts[each]} {each}" for each in get_args(Severity)) + ".")


def _print_finding(finding: Finding, place: str, width: int) -> None:
    mark = typer.style(f"{finding.severity:<{_MARK_WIDTH}}", fg=_COLOURS[finding.severity])
    indent = " " * (2 + _MARK_WIDTH + _CHECK_WIDTH)
    looked_at = "" if finding.looked_at == place else f" ({finding.looked_at})"
    lines = [f"{finding.found}{looked_at}"]
    lines += [f"→ {finding.remedy}"] if finding.remedy else []
    text = "\n".join(
        textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent)
        for line in lines
    )
    typer.echo(f"  {mark}{finding.check + ' ':<{_CHECK_WIDTH}}{text[len(indent) :]}")
