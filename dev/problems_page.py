"""`make reference`: write the page of problem types from the table of problems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.api.problem_help import HELP
from headwater.api.problems import INTERNAL, TYPE_PREFIX, Rule
from headwater.http.openapi_problems import names_of
from headwater.http.problems import RULES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "problems.md"

_HEAD = f"""\
# Problem types

An error response is `application/problem+json` (RFC 9457). Its `type` is `{TYPE_PREFIX}`
and one of the names below; it does not change between versions, so programs may depend on it.
`title` and `detail` are for people and may change. Every problem also has `status` and
`request_id`, and the members listed here. [HTTP API](http.md#errors) shows an example.
"""


def problems() -> dict[str, Rule]:
    """Return the rule of every problem type, by status and name."""
    rules = (*RULES.values(), INTERNAL)
    found = {name: rule for rule in rules for name in names_of(rule)}
    return dict(sorted(found.items(), key=lambda each: (each[1].status, each[0])))


def page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    status = 0
    for name, rule in problems().items():
        if rule.status != status:
            status = rule.status
            yield f"\n## {status}\n\n| type | title | when | what to do | members |\n"
            yield "|---|---|---|---|---|\n"
        help_ = HELP[name]
        members = ", ".join(f"`{member}`" for member in _members(rule)) or "–"
        yield f"| `{name}` | {rule.title} | {help_.cause} | {help_.remedy} | {members} |\n"


def _members(rule: Rule) -> tuple[str, ...]:
    same_name = [each.members for each in RULES.values() if each.name == rule.name]
    return max(same_name, key=len, default=())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
