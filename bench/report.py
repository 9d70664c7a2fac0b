"""The results as a table and as JSON, and two of them side by side."""

from collections.abc import Mapping, Sequence
from datetime import date

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from bench.case import Figure, Outcome, Spread

NOTHING = "-"
TIMES = {"s", "ms", "µs"}
"""The units of which less is better."""
_NOISE = 1.05  # of rows that have only one round

_FORMATS = {
    "s": ".3f",
    "ms": ".2f",
    "nDCG@10": ".3f",
    "x 1 process": ".2f",
}  # rates are whole numbers


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
            _times(figures.of_floor, outcome.spread("floor")),
            _times(figures.of_peer, outcome.spread("peer")),
            case.floor_is,
            "\n".join(target.text for target in case.targets),
            outcome.verdict,
        )
    return shown


def write(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints the table, and below it why a figure is missing."""
    console.print(table(outcomes))
    console.print("÷: of the best rounds; below, of the medians and (least-greatest of one round)")
    for outcome in outcomes:
        for who, reason in outcome.failures.items():
            console.print(f"{outcome.case.name}, {who}: {reason}", markup=False, highlight=False)


class Result(msgspec.Struct, frozen=True):
    """An outcome as it is written to a file."""

    case: str
    unit: str
    ours: Figure | None
    floor: Figure | None
    floor_is: str
    peer: Figure | None
    peer_is: str
    ours_to_floor: float | None
    ours_to_peer: float | None
    targets: Mapping[str, bool | None]
    rounds: Mapping[str, list[float]]
    failures: Mapping[str, str]
    floor_spread: Spread | None = None
    peer_spread: Spread | None = None


def result(outcome: Outcome) -> Result:
    case, figures = outcome.case, outcome.figures
    return Result(
        case=case.name,
        unit=case.unit,
        ours=figures.ours,
        floor=figures.floor,
        floor_is=case.floor_is,
        peer=figures.peer,
        peer_is=case.peer_is,
        ours_to_floor=figures.of_floor,
        ours_to_peer=figures.of_peer,
        targets={target.text: target.met(figures) for target in case.targets},
        rounds=outcome.rounds,
        failures=outcome.failures,
        floor_spread=outcome.spread("floor"),
        peer_spread=outcome.spread("peer"),
    )


def encoded(outcomes: Sequence[Outcome]) -> bytes:
    return msgspec.json.format(msgspec.json.encode([result(each) for each in outcomes])) + b"\n"


class Run(msgspec.Struct, frozen=True):
    """A run of all cases that was published: what was measured when, and on which machine."""

    day: date
    commit: str
    machine: str
    results: list[Result]


def decoded(text: bytes) -> list[Result]:
    """Return the results of a run, also of a published one."""
    run: list[Result] | Run = msgspec.json.decode(text, type=list[Result] | Run)
    return run.results if isinstance(run, Run) else run


def comparison(before: Sequence[Result], after: Sequence[Result]) -> Table:
    """Two runs side by side: the rows that both have."""
    shown = Table(box=box.SIMPLE, pad_edge=False)
    shown.add_column("measure", no_wrap=True)
    for heading in ("ours before", "after", "÷ floor before", "after", "÷ peer before", "after"):
        shown.add_column(heading, justify="right")
    shown.add_column("", no_wrap=True)
    earlier = {each.case: each for each in before}
    for new in after:
        if (old := earlier.get(new.case)) is not None:
            shown.add_row(
                f"{new.case}, {new.unit}",
                _figure(old.ours, old.unit),
                _figure(new.ours, new.unit),
                _times(old.ours_to_floor, old.floor_spread),
                _times(new.ours_to_floor, new.floor_spread),
                _times(old.ours_to_peer, old.peer_spread),
                _times(new.ours_to_peer, new.peer_spread),
                "SLOWER" if is_slower(old, new) else "",
            )
    return shown


def has_slower(before: Sequence[Result], after: Sequence[Result]) -> bool:
    """Return whether any row that both runs have is slower."""
    earlier = {each.case: each for each in before}
    return any(new.case in earlier and is_slower(earlier[new.case], new) for new in after)


def is_slower(old: Result, new: Result) -> bool:
    """Return whether all rounds were slower beside the floor than all before, by a twentieth."""
    was, now = old.floor_spread, new.floor_spread
    if was is None or now is None:
        return False
    if new.unit in TIMES:
        return now.low > was.high * _NOISE
    return now.high * _NOISE < was.low


def _figure(figure: Figure | None, unit: str) -> str:
    if figure is None:
        return NOTHING
    value = number(figure.value, unit)
    if "p99_ms" in figure.detail:
        return f"{value}\np99 {figure.detail['p99_ms']:.1f} ms"
    return "\n".join([value, *(f"{key} {each:.2f}" for key, each in figure.detail.items())])


def number(value: float, unit: str) -> str:
    """Return a figure in as many digits as its unit needs."""
    return f"{value:{_FORMATS.get(unit, ',.0f')}}"


def _times(ratio: float | None, spread: Spread | None) -> str:
    if ratio is None:
        return NOTHING
    below = f"\n{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})" if spread else ""
    return f"{ratio:.2f}{below}"
