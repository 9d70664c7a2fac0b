"""The texts by which contexts are sought for their outcomes, such as ``helpful<3``. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, cast

from headwater.errors import InvalidInputError
from headwater.errors.hints import quoted
from headwater.ports import Operator, OutcomeFilter

_COMPARISON = re.compile(r"\s*(.+?)\s*(<=|>=|!=|<|>|=)\s*(.+?)\s*", re.DOTALL)
_FLAGS = {"true": True, "false": False}


class SoughtOutcome(NamedTuple):
    """What one outcome of a context must match; a label is searched by its key."""

    filter: OutcomeFilter
    label: str | None = None


def sought_outcomes(
    score: str | None, label: str | None, answer_model: str | None, error: str | None
) -> Iterator[SoughtOutcome]:
    """Yield what outcomes of a context must match, each by one of them."""
    if score is not None:
        yield SoughtOutcome(sought_score(score))
    if label is not None:
        name, equals, text = label.partition("=")
        if equals and not (name.strip() and text):
            raise InvalidInputError(
                f"label is {quoted(label)}; give a label alone, or a score's name before it, such "
                "as tone=rude"
            )
        yield SoughtOutcome(OutcomeFilter(name=name.strip() if equals else None), text or name)
    if answer_model is not None:
        yield SoughtOutcome(OutcomeFilter(model=answer_model))
    if error is not None:
        yield SoughtOutcome(OutcomeFilter(error_type=error))


def sought_score(score: str) -> OutcomeFilter:
    """Return the filter of ``helpful``, ``helpful<3`` or ``helpful=true``."""
    match = _COMPARISON.fullmatch(score)
    if match is None:
        if not score.strip() or re.search("[<>=]", score):
            raise _invalid(score, "it needs a name and a number")
        return OutcomeFilter(name=score.strip())
    name, operator, text = match[1], cast("Operator", match[2]), match[3]
    if text.lower() in _FLAGS:
        if operator not in ("=", "!="):
            raise _invalid(score, f"a flag has no order, so {operator} cannot compare it")
        return OutcomeFilter(name=name, flag=_FLAGS[text.lower()] == (operator == "="))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _invalid(score, f"{quoted(text)} is no number; search labels with label=")
    return OutcomeFilter(name=name, operator=operator, value=value)


def _invalid(score: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"score is {quoted(score)}: {problem}; give a name alone, or with one of < <= > >= = != "
        "and a number or a flag, such as helpful<3 or helpful=true"
    )
