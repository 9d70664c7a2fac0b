"""The pages of the documentation: blocks, tables and sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "CODE_OF_CONDUCT.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]

_FENCE = re.compile(r"```(\w*)(?: (.*))?")
_TITLE = re.compile(r'title="([^"]+)"')


class Block(NamedTuple):
    """A fenced block: its language, its title, the line it begins at and its text."""

    page: Path
    language: str
    title: str
    line: int
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    opened: Block | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.fullmatch(line)
        if opened is None and fence:
            title = _TITLE.search(fence[2] or "")
            opened, lines = Block(page, fence[1], title[1] if title else "", number, ""), []
        elif opened is not None and line == "```":
            yield opened._replace(text="\n".join(lines) + "\n")
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{page} ends inside the block of line {opened and opened.line}"


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def sections(page: Path) -> dict[str, str]:
    """Return the text under each heading."""
    parts = re.split(r"^#+ (.*)$", prose(page), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """Return the rows of all tables in a text, without headings."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("|---"):
            found.pop()
        elif line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            found.append([cell.strip().replace("\\|", "|") for cell in cells])
    return found


def quoted(cell: str) -> str:
    """Return the text in the backticks at the start of a cell, or the cell."""
    match = re.match(r"(`+) ?(.+?) ?\1(?!`)", cell)
    return match[2] if match else cell


def name_of(page: Path) -> str:
    """Return the path of a page, for names of tests."""
    return str(page.relative_to(ROOT))
