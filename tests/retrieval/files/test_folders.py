"""Documents in files: Markdown, plain text and HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import InvalidInputError
from headwater.model.indexes import Document
from headwater.retrieval.files.entries import Skipped
from headwater.retrieval.files.reading import DocumentFiles
from headwater.retrieval.files.tables import Fields
from headwater.settings.groups import IndexSettings


def _read(*paths: Path) -> list[Document | Skipped]:
    return list(DocumentFiles(paths, Fields(), IndexSettings()))


def _one(tmp_path: Path, name: str, content: str | bytes) -> Document | Skipped:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    (found,) = _read(file)
    return found


def test_the_files_of_a_folder_are_documents_by_their_relative_path(tmp_path: Path) -> None:
    for name in ("b.txt", "a.md", "guide/c.html", ".git/config.txt", "guide/.hidden.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"text of {name}")

    assert _read(tmp_path) == [
        Document("a.md", "text of a.md"),
        Document("b.txt", "text of b.txt"),
        Document("guide/c.html", "text of guide/c.html"),
    ]


def test_files_that_are_not_text_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "dump.txt").write_bytes(b"\x7fELF\0\0\0")

    assert _read(tmp_path) == [
        Skipped(str(tmp_path / "dump.txt"), "not a text file", is_invalid=False),
        Skipped(str(tmp_path / "logo.png"), "not Markdown, text or HTML", is_invalid=False),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Größe".encode(), "Größe"),
        ("Größe".encode("utf-8-sig"), "Größe"),
        ("Größe".encode("utf-16"), "Größe"),
        ("Größe".encode("latin-1"), "Größe"),
        (b"", ""),
        (b"a\r\nb", "a\r\nb"),
        (b"x" * 9_000 + "é".encode() * 600_000, "x" * 9_000 + "é" * 600_000),
    ],
)
def test_the_encoding_of_a_file_is_found(tmp_path: Path, content: bytes, text: str) -> None:
    assert _one(tmp_path, "a.txt", content) == Document("a.txt", text)


def test_the_encoding_that_a_page_names_is_used(tmp_path: Path) -> None:
    page = '<meta http-equiv="Content-Type" content="text/html; charset=koi8-r"><p>Привет'

    assert _one(tmp_path, "a.html", page.encode("koi8-r")) == Document("a.html", "Привет")


def test_front_matter_is_metadata(tmp_path: Path) -> None:
    content = "---\ntitle: Returns\ntags: [a, b]\ndate: 2024-05-01\nyear: 2024\n---\nText.\n"

    assert _one(tmp_path, "a.md", content) == Document(
        "a.md",
        "# Returns\n\nText.\n",
        {"title": "Returns", "tags": ["a", "b"], "date": "2024-05-01", "year": 2024},
    )


@pytest.mark.parametrize(
    ("content", "metadata"),
    [
        ("Intro.\n\n## The title ##\n\nText.", {"title": "The title"}),
        ("---\nnot a mapping\n---\nText.", {}),
        ("---\nText without an end.", {}),
    ],
)
def test_the_text_of_markdown_is_kept(
    tmp_path: Path, content: str, metadata: dict[str, str]
) -> None:
    assert _one(tmp_path, "a.md", content) == Document("a.md", content, metadata)


def test_an_existing_heading_is_not_repeated(tmp_path: Path) -> None:
    assert _one(tmp_path, "a.md", "---\ntitle: A\n---\n# A\ntext") == Document(
        "a.md", "# A\ntext", {"title": "A"}
    )


@pytest.mark.parametrize(
    ("yaml", "line", "problem"),
    [
        ("a: 1\nb: [1, 2\n", 4, "expected ',' or ']'"),
        ("a: &x [1]\nb: *x\n", 3, "aliases are not supported"),
        ("a: 2024-99-99\n", 1, "month must be in 1..12"),
    ],
)
def test_invalid_front_matter_is_named_with_its_line(
    tmp_path: Path, yaml: str, line: int, problem: str
) -> None:
    found = _one(tmp_path, "a.md", f"---\n{yaml}---\nText.")

    assert isinstance(found, Skipped)
    assert found.is_invalid
    assert found.where == f"{tmp_path / 'a.md'}:{line}"
    assert problem in found.problem


def test_html_becomes_readable_text(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title>Help &amp;
    Contact</title><style>p {color: red}</style><script>if (a < b) alert("x")</script></head>
    <body><nav><ul><li>Home</li></ul></nav>
    <h1>Returns</h1><p>Within <b>30</b>
    days, <a href="/x">see below</a>.<br>Free.</p>
    <ul><li>One</li><li>Two<ol><li>Inner</li><li>Last</li></ol></li></ul>
    <pre><code>def f():
        return 1 &lt; 2
</code></pre><p>Call <code>f()</code>.</p>
    <table><tr><th>Country</th><th>Days</th></tr><tr><td><p>DE</p></td><td>3</td></tr></table>
    <p>End<img src="x.png" alt=" of page"></p></body></html>"""

    assert _one(tmp_path, "a.html", page) == Document(
        "a.html",
        "# Returns\n\nWithin 30 days, see below.\nFree.\n\n- One\n- Two\n  1. Inner\n  2. Last\n\n"
        "```\ndef f():\n        return 1 < 2\n```\n\nCall `f()`.\n\n"
        "| Country | Days |\n| DE | 3 |\n\nEnd of page",
        {"title": "Help & Contact"},
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a<p>b", "a\n\nb"),
        ("</div></ul></pre></nav>a", "a"),
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("a <!-- comment --> b &copy; &#x41;", "a b © A"),
        ("<nav>x</nav>a<svg><title>t</title></svg>", "a"),
        ("<tr><td>1<td>2", "| 1 | 2"),
        ("x < y and <unknown>z</unknown>", "x < y and z"),
    ],
)
def test_malformed_html_is_read(tmp_path: Path, page: str, text: str) -> None:
    assert _one(tmp_path, "a.html", page) == Document("a.html", text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone.md").symlink_to(tmp_path / "nothing")

    assert _read(tmp_path) == [
        Skipped(str(tmp_path / "gone.md"), "cannot be read: No such file or directory")
    ]


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()

    with pytest.raises(InvalidInputError, match=r"a\.pdf cannot be read: .* \.csv, .*\.md"):
        DocumentFiles([tmp_path / "a.pdf"], Fields(), IndexSettings())
    with pytest.raises(InvalidInputError, match="nothing does not exist"):
        DocumentFiles([tmp_path / "nothing"], Fields(), IndexSettings())
