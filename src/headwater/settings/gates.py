"""Gates of evaluations: the limits of ``[eval.gates]``, by name and form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest

Gate = int | str
"""A limit of an evaluation: a number, a share such as ``2%`` or a growth such as ``+5%``."""

GATES: Mapping[str, Literal["share", "growth", "drop", "floor"]] = {
    "max_changed": "share",
    "max_failed": "share",
    "max_skipped": "share",
    "approximate": "share",
    "lost_required": "share",
    "new_refusals": "share",
    "p50_tokens": "growth",
    "p95_tokens": "growth",
    "cost": "growth",
    "score_drop": "drop",
    "hard_break": "floor",
}
"""The gates: of some, a number of contexts or a share of all; of others, how much a number of all
contexts may grow; of scores, how far the mean of one may fall, and what no context may fall below.
"""

DEFAULT_GATES: Mapping[str, Gate] = {"max_failed": 0}
"""Gates that hold unless a limit is set: code that raises for a recorded context is broken."""

_LIMIT = re.compile(r"(\+?)(\d{1,12}(?:\.\d{1,6})?)(\s?%)?")
_FORMS = {
    "share": "a number of contexts such as 0, or a share of all such as '2%'",
    "growth": "a growth such as '+5%' or '+200', or a largest number such as 4000",
    "drop": "scores, each with the largest fall of its mean, such as 'helpful 0.1', or with the "
    "level of significance, 'helpful 0.1 p<0.01'",
    "floor": "scores, each with a limit that no context may cross, such as 'safe>=1, rude<=0.2'",
}
_DROP = re.compile(r"(\S+)\s+(\d+(?:\.\d+)?)(?:\s+p\s?<\s?(0?\.\d+))?")
_FLOOR = re.compile(r"([^\s<>=]+)\s*(>=|<=)\s*(-?\d+(?:\.\d+)?)")
_LEVEL = 0.05


class Limit(NamedTuple):
    """The limit of a gate; a growth is one over the value that the recorded contexts have."""

    amount: Fraction
    is_percent: bool
    is_growth: bool

    def most(self, whole: int) -> Fraction:
        """Return the largest value that holds, given all contexts or the value before."""
        amount = self.amount * whole / 100 if self.is_percent else self.amount
        return whole + amount if self.is_growth else amount


def parse_gates(gates: Mapping[str, Gate]) -> dict[str, Limit]:
    """Return the limits by gate; raise InvalidInputError for one that does not exist or parse."""
    for name in gates:
        if name not in GATES:
            raise InvalidInputError(f"there is no gate {name!r}; {nearest(name, GATES)}")
    return {
        name: _limit(name, value)
        for name, value in gates.items()
        if GATES[name] in ("share", "growth")
    }


class ScoreDrop(NamedTuple):
    """How far the mean of a score may fall; a larger fall counts if chance hardly explains it."""

    text: str
    score: str
    most: float
    level: float


class ScoreFloor(NamedTuple):
    """A limit of a score that no single context may cross, whatever the average says."""

    text: str
    score: str
    is_least: bool
    limit: float

    def holds(self, value: float) -> bool:
        """Return whether a score is on the right side of the limit."""
        return value >= self.limit if self.is_least else value <= self.limit


def parse_score_gates(gates: Mapping[str, Gate]) -> tuple[list[ScoreDrop], list[ScoreFloor]]:
    """Return the gates of scores; raise InvalidInputError for one that does not parse."""
    drops = [
        ScoreDrop(found[0], found[1], float(found[2]), float(found[3] or _LEVEL))
        for found in _matches("score_drop", _DROP, gates)
    ]
    floors = [
        ScoreFloor(found[0], found[1], found[2] == ">=", float(found[3]))
        for found in _matches("hard_break", _FLOOR, gates)
    ]
    return drops, floors


def _matches(name: str, form: re.Pattern[str], gates: Mapping[str, Gate]) -> list[re.Match[str]]:
    if name not in gates:
        return []
    found = [form.fullmatch(part.strip()) for part in str(gates[name]).split(",")]
    if None in found:
        raise InvalidInputError(
            f"the gate {name} is {gates[name]!r}; it must be {_FORMS[GATES[name]]}"
        )
    return [each for each in found if each is not None]


def _limit(name: str, value: Gate) -> Limit:
    match = _LIMIT.fullmatch(str(value).strip())
    if match is not None:
        limit = Limit(Fraction(match[2]), bool(match[3]), bool(match[1]))
        # A share is never a growth, and a percentage of growth needs its sign.
        if limit.is_growth <= (GATES[name] == "growth") and not (
            GATES[name] == "growth" and limit.is_percent and not limit.is_growth
        ):
            return limit
    raise InvalidInputError(f"the gate {name} is {value!r}; it must be {_FORMS[GATES[name]]}")


def check_gates(gates: Mapping[str, Gate]) -> Mapping[str, Gate]:
    """Return gates that can be parsed; raise InvalidInputError otherwise."""
    parse_gates(gates)
    parse_score_gates(gates)
    return gates
