"""What a benchmark case is: contestants, their figures and the targets that judge them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol, TypeVar

Option = TypeVar("Option")


class ContestantFailedError(Exception):
    """A contestant could not be set up or measured; the message gives the reason."""


class NotInstalledError(ContestantFailedError):
    """A peer could not be installed."""


def last_line(said: str) -> str:
    """Return the last line of a log, where a program usually reports its failure."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "the log is empty"


@dataclass(frozen=True)
class Effort:
    """How long to measure, and over how much data."""

    rounds: int
    seconds: float  # a timed round
    events: int  # a round of the worker
    server_events: int  # the same over servers, which is faster
    peer_events: int  # the same for Fabra, which is slower
    past_events: int  # handled before the first round, for rows that need a filled store
    level: Literal["full", "quick", "tiny"] = "full"

    def of(self, full: Option, quick: Option, tiny: Option) -> Option:
        """Choose by the level."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.level]

    @property
    def is_timed(self) -> bool:
        """Whether a round counts; a tiny one only shows that a contestant works."""
        return self.level != "tiny"


FULL = Effort(
    rounds=7,
    seconds=1.0,
    events=8_000,
    server_events=30_000,
    peer_events=1_500,
    past_events=200_000,
)
QUICK = Effort(
    rounds=2,
    seconds=0.5,
    events=3_000,
    server_events=10_000,
    peer_events=500,
    past_events=20_000,
    level="quick",
)
TINY = Effort(
    rounds=1,
    seconds=0.05,
    events=100,
    server_events=200,
    peer_events=20,
    past_events=1_000,
    level="tiny",
)


@dataclass(frozen=True)
class Figure:
    """One measured number with its details."""

    value: float
    detail: Mapping[str, float] = field(default_factory=dict)

    def of(self, key: str) -> float:
        """A detail, or the number itself."""
        return self.detail[key] if key else self.value


Measure = Callable[[], Figure]
Contestant = Callable[[Effort], AbstractContextManager[Measure]]


@dataclass(frozen=True)
class Figures:
    """The best figure of each contestant; None where there is none."""

    ours: Figure | None = None
    floor: Figure | None = None
    peer: Figure | None = None

    @property
    def of_floor(self) -> float | None:
        return _ratio(self.ours, self.floor)

    @property
    def of_peer(self) -> float | None:
        return _ratio(self.ours, self.peer)


def _ratio(above: Figure | None, below: Figure | None) -> float | None:
    return above.value / below.value if above and below else None


class Target(Protocol):
    """A promise about the figures: its wording, and whether it is kept (None: not measured)."""

    @property
    def text(self) -> str: ...

    def met(self, figures: Figures) -> bool | None: ...


@dataclass(frozen=True)
class TimesFloor:
    """At least so many times the floor's rate."""

    times: float

    @property
    def text(self) -> str:
        return f"≥ {self.times:g} x floor"

    def met(self, figures: Figures) -> bool | None:
        return None if figures.of_floor is None else figures.of_floor >= self.times


@dataclass(frozen=True)
class TimesPeer:
    """At least so many times the peer's rate."""

    times: float

    @property
    def text(self) -> str:
        return f"≥ {self.times:g} x peer"

    def met(self, figures: Figures) -> bool | None:
        return None if figures.of_peer is None else figures.of_peer >= self.times


@dataclass(frozen=True)
class SecondsMoreThanFloor:
    """At most so many seconds more than the floor takes."""

    seconds: float

    @property
    def text(self) -> str:
        return f"≤ floor + {self.seconds:g} s"

    def met(self, figures: Figures) -> bool | None:
        if figures.ours is None or figures.floor is None:
            return None
        return figures.ours.value - figures.floor.value <= self.seconds


@dataclass(frozen=True)
class MicrosecondsMoreThanFloor:
    """At most so many microseconds more than the floor takes."""

    microseconds: float

    @property
    def text(self) -> str:
        return f"≤ floor + {self.microseconds:,.0f} µs"

    def met(self, figures: Figures) -> bool | None:
        if figures.ours is None or figures.floor is None:
            return None
        return figures.ours.value - figures.floor.value <= self.microseconds


@dataclass(frozen=True)
class AtMostTimesFloor:
    """At most so many times as long as the floor takes."""

    times: float
    key: str = ""  # of the detail that is judged; by default the figure itself

    @property
    def text(self) -> str:
        return f"{_of(self.key)}≤ {self.times:g} x floor"

    def met(self, figures: Figures) -> bool | None:
        if figures.ours is None or figures.floor is None:
            return None
        return figures.ours.of(self.key) <= self.times * figures.floor.of(self.key)


@dataclass(frozen=True)
class AtMostMilliseconds:
    """At most so many milliseconds."""

    milliseconds: float
    key: str = ""

    @property
    def text(self) -> str:
        return f"{_of(self.key)}≤ {self.milliseconds:g} ms"

    def met(self, figures: Figures) -> bool | None:
        return None if figures.ours is None else figures.ours.of(self.key) <= self.milliseconds


def _of(key: str) -> str:
    return f"{key.removesuffix('_ms')} " if key else ""


@dataclass(frozen=True)
class AtMostSeconds:
    """At most so many seconds."""

    seconds: float

    @property
    def text(self) -> str:
        return f"≤ {self.seconds:g} s"

    def met(self, figures: Figures) -> bool | None:
        return None if figures.ours is None else figures.ours.value <= self.seconds


@dataclass(frozen=True)
class AtLeast:
    """At least such a rate."""

    rate: float

    @property
    def text(self) -> str:
        return f"≥ {self.rate:,.0f}"

    def met(self, figures: Figures) -> bool | None:
        return None if figures.ours is None else figures.ours.value >= self.rate


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table."""

    name: str
    unit: str  # of a rate or "x …" more is better, of "s", "ms" and "µs" less
    ours: Contestant
    floor: Contestant | None = None
    floor_is: str = ""
    peer: Contestant | None = None
    peer_is: str = ""
    targets: tuple[Target, ...] = ()
    rounds: int | None = None  # at most so many, where one takes long

    def best(self, figures: list[Figure]) -> Figure:
        """Picks the least disturbed round: noise only ever makes a time or a rate worse."""
        if self.unit == "ms":
            # What disturbs a round shows in its slowest first.
            return min(figures, key=lambda figure: figure.of("p99_ms"))
        if self.unit.startswith("x "):
            # Noise makes a ratio of two rates greater as often as less.
            return sorted(figures, key=lambda figure: figure.value)[(len(figures) - 1) // 2]
        pick = min if self.unit in ("s", "µs") else max
        return pick(figures, key=lambda figure: figure.value)


@dataclass(frozen=True)
class Spread:
    """How much a ratio varies: that of the medians, and the least and greatest of a round."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """A case after its rounds: the best figures, every round, and what went wrong."""

    case: Case
    figures: Figures
    rounds: dict[str, list[float]]
    failures: dict[str, str]

    def spread(self, other: str) -> Spread | None:
        """Return the spread of our ratio to a contestant, measured in the same rounds."""
        ours, others = self.rounds.get("ours"), self.rounds.get(other)
        if not ours or not others or not {"ours", other}.isdisjoint(self.failures):
            return None
        ratios = [one / another for one, another in zip(ours, others, strict=True)]
        return Spread(median(ours) / median(others), min(ratios), max(ratios))

    @property
    def met(self) -> bool:
        return all(target.met(self.figures) is True for target in self.case.targets)

    @property
    def verdict(self) -> str:
        if "ours" in self.failures:
            return "FAILED"
        answers = [target.met(self.figures) for target in self.case.targets]
        if not answers:
            return "reported"
        if False in answers:
            return "MISSED"
        return "not measured" if None in answers else "met"
