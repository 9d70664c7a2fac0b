"""The results as a table and as JSON."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from bench.case import Figure, Outcome

NOTHING = "-"
_FORMATS = {"s": ".3f", "ms": ".2f", "nDCG@10": ".3f"}  # rates are whole numbers


def table(outcomes: Sequence[Outcome]) -> Table:
    shown = Table(box=box.SIMPLE, pad_edge=False)
    shown.add_column("measure", no_wrap=True)
    for heading in ("ours", "floor", "peer", "÷ floor", "÷ peer"):
        shown.add_column(heading, justify="right")
    shown.add_column("floor is")
    shown.add_column("target")
    shown.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        case, figures = outcome.case, outcome.figures
        shown.add_row(
            f"{case.name}, {case.unit}",
            _figure(figures.ours, case.unit),
            _figure(figures.floor, case.unit),
            _figure(figures.peer, case.unit) + (f"\n{case.peer_is}" if figures.peer else ""),
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
        "peer": figures.peer and vars(figures.peer),
        "peer_is": outcome.case.peer_is,
        "ours_to_floor": figures.of_floor,
        "ours_to_peer": figures.of_peer,
        "targets": {t.text: t.met(figures) for t in outcome.case.targets},
        "rounds": outcome.rounds,
        "failures": outcome.failures,
    }


def _figure(figure: Figure | None, unit: str) -> str:
    if figure is None:
        return NOTHING
    number = f"{figure.value:{_FORMATS.get(unit, ',.0f')}}"
    if "p99_ms" in figure.detail:
        return f"{number}\np99 {figure.detail['p99_ms']:.1f} ms"
    return "\n".join([number, *(f"{key} {value:.2f}" for key, value in figure.detail.items())])


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"
