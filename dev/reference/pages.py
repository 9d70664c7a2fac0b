"""Pages with generated parts: their markers, and the parts that each kind of marker has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dev.reference import commands, errors, log_events, metrics, places, problems, routes, settings
from dev.reference.tables import IncompleteReferenceError

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"

_MARKED = re.compile(r"^<!-- generated: (\w+) ?([^\n]*?) ?-->\n.*?^<!-- end -->$", re.S | re.M)


class Part(NamedTuple):
    """A kind of generated part: the page that it is for, all its subjects, and its lines."""

    page: str
    subjects: Callable[[], Collection[str]]
    lines: Callable[[Sequence[str]], Iterator[str]]


def _whole(lines: Callable[[], Iterator[str]]) -> Callable[[Sequence[str]], Iterator[str]]:
    return lambda _: lines()


def _one() -> Collection[str]:
    return ("",)


PARTS = {
    "commands": Part("cli.md", _one, _whole(commands.overview)),
    "options": Part("cli.md", commands.subjects, commands.options),
    "errors": Part("errors.md", _one, _whole(errors.tree)),
    "events": Part("metrics.md", _one, _whole(log_events.events)),
    "metrics": Part("metrics.md", _one, _whole(metrics.metrics)),
    "places": Part("places.md", _one, _whole(places.places)),
    "problems": Part("problems.md", _one, _whole(problems.problems)),
    "routes": Part("http.md", _one, _whole(routes.routes)),
    "settings": Part("settings.md", settings.subjects, settings.settings),
}


def generate() -> dict[Path, str]:
    """Return the present text of every page of the reference."""
    found: Counter[tuple[str, str]] = Counter()

    def written(match: re.Match[str]) -> str:
        kind, subjects = match[1], match[2].split(", ")
        found.update((kind, subject) for subject in subjects)
        known = PARTS[kind].subjects() if kind in PARTS else ()
        if not set(subjects) <= set(known):
            raise IncompleteReferenceError(
                f"{_marker(kind, match[2])} names something that does not exist: "
                "correct or remove it, with its section"
            )
        lines = PARTS[kind].lines(subjects)
        return "\n".join([_marker(kind, match[2]), "", *lines, "", "<!-- end -->"])

    texts = {
        page: _MARKED.sub(written, page.read_text(encoding="utf-8"))
        for page in sorted(PAGES.glob("*.md"))
    }
    for kind, part in PARTS.items():
        for subject in part.subjects():
            if found[kind, subject] != 1:
                raise IncompleteReferenceError(
                    f"docs/reference/{part.page} has {found[kind, subject]} times "
                    f"{_marker(kind, subject)}: it needs one, with `<!-- end -->` below it"
                )
    return texts


def _marker(kind: str, subjects: str) -> str:
    return f"<!-- generated: {kind}{' ' * bool(subjects)}{subjects} -->"
