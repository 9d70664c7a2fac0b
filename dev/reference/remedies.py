"""The errors that the page about errors explains: the reference links to its sections."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from dev.reference.tables import code
from headwater.http.routing.openapi import names_of
from headwater.http.routing.problems import RULES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "errors-faq.md"

_HEADING = re.compile(r"^### (\S+)$", re.M)


@cache
def remedies() -> frozenset[str]:
    """Return the problem types and the classes of errors that have a section."""
    return frozenset(_HEADING.findall(PAGE.read_text(encoding="utf-8")))


def linked(name: str, *others: str) -> str:
    """Return the name of an error, with a link if it or another name of it has a section."""
    section = next((each for each in (name, *others) if each in remedies()), None)
    return f"[{code(name)}](../how-to/{PAGE.name}#{section.lower()})" if section else code(name)


def classes_of(problem: str) -> list[str]:
    """Return the names of the errors that are answered with a problem type, its own first."""
    own = [kind for kind, rule in RULES.items() if problem in names_of(rule)]
    below = [error for kind in own for error in kind.__subclasses__() if error not in RULES]
    return [error.__name__ for error in own] + sorted(error.__name__ for error in below)
