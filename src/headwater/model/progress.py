"""The progress of long actions, and the lines of their responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from headwater.model.problems import Problem

NDJSON = "application/x-ndjson"

P = TypeVar("P")
R = TypeVar("R")


class ProgressStep(msgspec.Struct, frozen=True):
    """How many of all parts of a long action are done."""

    done: int
    total: int


class ActionLine(msgspec.Struct, Generic[P, R], frozen=True, omit_defaults=True):
    """A line of the answer: progress until the last one, which has the result or the problem."""

    progress: P | None = None
    result: R | None = None
    problem: Problem | None = None


class FileLine(ActionLine[P, R], Generic[P, R], frozen=True, omit_defaults=True):
    """A line of the answer; the ``data`` of all lines together, base64, is a file."""

    data: bytes = b""


OnStep = Callable[[int, int], None]
"""Called with the number of parts that are done and the number of all."""
