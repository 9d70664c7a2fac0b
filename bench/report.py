"""The results as a table for people and as JSON for programs."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from bench.case import Figure, Outcome

NOTHING = "-"


def table(outcomes: Sequence[Outcome]) -> Table:
    shown = Table(box=box.SIMPLE, pad_edge=False)
    shown.add_column("measure", no_wrap=True)
    for heading in ("ours", "floor", "Fabra", "÷ floor", "÷ Fabra"):
        shown.add_column(heading, justify="right")
    shown.add_column("floor is")
    shown.add_column("target")
    shown.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        case, figures = outcome.case, outcome.figures
        shown.add_row(
            f"{case.name}, {case.unit}",
            *(_figure(figure, case.unit) for figure in (figures.ours, figures.floor, figures.peer)),
            _times(figures.of_floor),
            _times(figures.of_peer),
            case.floor_is,
            "\n".join(target.text for target in case.targets),
            outcome.verdict,
        )
    return shown


def write(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints the table, and below it why a figure is missing."""
    console.print(table(outcomes))
    for outcome in outcomes:
        for who, reason in outcome.failures.items():
            console.print(f"{outcome.case.name}, {who}: {reason}", markup=False, highlight=False)


def plain(outcome: Outcome) -> dict[str, object]:
    """An outcome as JSON-ready values."""
    figures = outcome.figures
    return {
        "case": outcome.case.name,
        "unit": outcome.case.unit,
        "ours": figures.ours and vars(figures.ours),
        "floor": figures.floor and vars(figures.floor),
        "floor_is": outcome.case.floor_is,
        "fabra": figures.peer and vars(figures.peer),
        "ours_to_floor": figures.of_floor,
        "ours_to_fabra": figures.of_peer,
        "targets": {t.text: t.met(figures) for t in outcome.case.targets},
        "rounds": outcome.rounds,
        "failures": outcome.failures,
    }


def _figure(figure: Figure | None, unit: str) -> str:
    if figure is None:
        return NOTHING
    number = f"{figure.value:.3f}" if unit == "s" else f"{figure.value:,.0f}"
    return f"{number}\np99 {figure.detail['p99_ms']:.1f} ms" if figure.detail else number


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"
