"""Links have targets, and no file names machines, package hosts or work sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, blocks, name_of, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FOLDERS = (
    "src",
    "tests",
    "conformance",
    "examples",
    "bench",
    "chaos",
    "proof",
    "soak",
    "dev",
    "docs",
    "requirements",
    ".ci",
    ".github",
)
_SUFFIXES = {
    ".md",
    ".py",
    ".toml",
    ".txt",
    ".in",
    ".sql",
    ".csv",
    ".sh",
    ".yaml",
    ".yml",
    ".service",
    ".env",
    ".ipynb",
    "",
}

_PUBLIC = {
    "headwater",
    "headwater.client",
    "headwater.errors",
    "headwater.integrations.langchain",
    "headwater.integrations.langgraph",
    "headwater.integrations.llamaindex",
    "headwater.integrations.openai_agents",
    "headwater.integrations.pydantic_ai",
    "headwater.testing",
}

# Put together here, so that this file does not say them.
_FOREIGN = {
    "a path of someone's machine": "|".join(
        re.escape(f"/{folder}/") for folder in ("work", "root", "Users")
    )
    + r"|/home/\w",
    "a host that packages come from": "|".join(
        map(re.escape, (f"py{'pi'}.org", f"pythonhosted{'.'}org", f"npmjs{'.'}org"))
    ),
    "the session in which it was written": r"\b(?:this|earlier|previous|next|last) " + "session",
}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target} is not there"
        if anchor:
            assert anchor in _anchors(file), f"{target}: no such heading"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_imports_only_public_modules(page: Path) -> None:
    for block in blocks(page):
        imports = re.findall(r"^\s*(?:from|import) (headwater[\w.]*)", block.text, flags=re.M)
        assert set(imports) <= _PUBLIC, f"{name_of(page)}, the block of line {block.line}"


def test_every_page_is_reached_from_the_index() -> None:
    linked = {(DOCS / target).resolve() for target in _LINK.findall(prose(DOCS / "index.md"))}
    assert set(DOCS.rglob("*.md")) - {DOCS / "index.md"} <= linked


def _texts() -> Iterator[Path]:
    for folder in _FOLDERS:
        yield from (file for file in (ROOT / folder).rglob("*") if file.suffix in _SUFFIXES)
    # In a worktree `.git` is a file that names the repository's path.
    yield from (f for f in ROOT.iterdir() if f.suffix in _SUFFIXES and f.name != ".git")


@pytest.mark.parametrize("what", _FOREIGN)
def test_no_file_names(what: str) -> None:
    pattern = re.compile(_FOREIGN[what])
    found = [
        f"{name_of(file)}:{number}: {line.strip()}"
        for file in _texts()
        if file.is_file() and not file.name.startswith(".coverage")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
