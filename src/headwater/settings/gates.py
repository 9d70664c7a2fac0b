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

GATES: Mapping[str, Literal["share", "growth"]] = {
    "max_changed": "share",
    "max_failed": "share",
    "max_skipped": "share",
    "approximate": "share",
    "lost_required": "share",
    "new_refusals": "share",
    "p50_tokens": "growth",
    "p95_tokens": "growth",
    "cost": "growth",
}
"""The gates: of some, a number of contexts or a share of all; of others, how much a number of all
contexts may grow."""

DEFAULT_GATES: Mapping[str, Gate] = {"max_failed": 0}
"""Gates that hold unless a limit is set: code that raises for a recorded context is broken."""

_LIMIT = re.compile(r"(\+?)(\d{1,12}(?:\.\d{1,6})?)(\s?%)?")
_FORMS = {
    "share": "a number of contexts such as 0, or a share of all such as '2%'",
    "growth": "a growth such as '+5%' or '+200', or a largest number such as 4000",
}


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
    return {name: _limit(name, value) for name, value in gates.items()}


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
    return gates
