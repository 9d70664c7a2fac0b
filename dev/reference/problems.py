"""The problem types of the HTTP API, by status."""

from __future__ import annotations

from collections.abc import Iterator

from dev.reference.remedies import classes_of, linked
from dev.reference.tables import code, table
from headwater.http.routing.openapi import names_of, problem_help
from headwater.http.routing.problems import RULES
from headwater.model.problems import INTERNAL, Rule


def problems() -> Iterator[str]:
    """Yield a section with a table for each status."""
    rules = (*RULES.values(), INTERNAL)
    found = {name: rule for rule in rules for name in names_of(rule)}
    for status in sorted({rule.status for rule in found.values()}):
        yield from (f"## {status}", "")
        names = sorted(name for name, rule in found.items() if rule.status == status)
        rows = [(name, found[name], problem_help()[name]) for name in names]
        yield from table(
            ("type", "title", "when", "what to do", "members"),
            (
                (_linked(name), rule.title, help_.cause, help_.remedy, code(*_members(rule)))
                for name, rule, help_ in rows
            ),
        )
        yield ""


def _linked(name: str) -> str:
    return linked(name, *classes_of(name))


def _members(rule: Rule) -> tuple[str, ...]:
    same_name = [each.members for each in RULES.values() if each.name == rule.name]
    return max(same_name, key=len, default=())
