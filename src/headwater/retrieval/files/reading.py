"""Documents from files and folders, checked and in a fixed order."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from headwater.errors import InvalidInputError
from headwater.model.indexes import Document
from headwater.retrieval.document_checks import checked_document
from headwater.retrieval.files.entries import (
    LARGEST_FILE,
    FileEntries,
    FileEntry,
    Skipped,
    read_text,
)
from headwater.retrieval.files.tables import Fields, read_csv, read_jsonl, read_parquet
from headwater.settings.groups import IndexSettings

_TABLES: dict[str, Callable[[Path, Fields], FileEntries]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}
MARKDOWN = frozenset({".md", ".markdown", ".mdx"})
HTML = frozenset({".html", ".htm", ".xhtml"})
PLAIN = frozenset({".txt", ".text", ".rst", ".adoc", ".org", ".log"})
SUFFIXES = MARKDOWN | HTML | PLAIN
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*?)[ \t#]*$", re.MULTILINE)
_TOP_HEADING = re.compile(r"\s*#{1,6}\s|\s*[^\r\n]+\r?\n(?:=+|-+)\s")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class _DocumentFile(NamedTuple):
    """A file, its size, and the function that reads it."""

    path: Path
    size: int
    read: Callable[[], FileEntries]


class DocumentFiles:
    """The documents of files and folders, in a fixed order.

    ``total_bytes`` and ``read_bytes`` tell how far the reading is; ``ids`` are the ids of the
    documents so far.
    """

    def __init__(self, paths: Sequence[Path], fields: Fields, limits: IndexSettings) -> None:
        self._files = [file for path in paths for file in _files(path, fields)]
        self._limits = limits
        self.total_bytes = sum(file.size for file in self._files)
        self.read_bytes = 0
        self.ids: set[str] = set()

    def __iter__(self) -> Iterator[Document | Skipped]:
        """Yield each document, and each part that was skipped."""
        before = 0
        for file in self._files:
            for position, where, content in _readable(file):
                self.read_bytes = before + position
                yield self._checked(where, content) if isinstance(content, Document) else content
            before += file.size

    def _checked(self, where: str, document: Document) -> Document | Skipped:
        """Return the document if it can be indexed and its id was not read before."""
        try:
            checked = checked_document(document.id, document.text, document.metadata, self._limits)
        except InvalidInputError as error:
            return Skipped(where, str(error))
        if checked.id in self.ids:
            problem = f"the document {checked.id!r} was read before; give each its own id"
            return Skipped(where, problem)
        self.ids.add(checked.id)
        return document


def _files(path: Path, fields: Fields) -> Iterator[_DocumentFile]:
    if not path.exists():
        raise InvalidInputError(f"{path} does not exist; name files or folders to read")
    suffix = path.suffix.lower()
    if path.is_dir():
        for file in files_in(path):
            read = partial(read_file, file, file.relative_to(path).as_posix())
            yield _DocumentFile(file, _size(file), read)
    elif suffix in _TABLES:
        yield _DocumentFile(path, _size(path), partial(_TABLES[suffix], path, fields))
    elif suffix in SUFFIXES:
        yield _DocumentFile(path, _size(path), partial(read_file, path, path.name))
    else:
        suffixes = ", ".join(sorted(_TABLES.keys() | SUFFIXES))
        raise InvalidInputError(
            f"{path} cannot be read: its name ends with none of {suffixes}; convert or rename it"
        )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # a broken link, which reading reports
        return 0


def _readable(file: _DocumentFile) -> FileEntries:
    try:
        yield from file.read()
    except OSError as error:
        skipped = Skipped(str(file.path), f"cannot be read: {error.strerror}")
        yield FileEntry(file.size, skipped.where, skipped)


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in a fixed order, without hidden ones."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))


def read_file(file: Path, document_id: str) -> FileEntries:
    """Yield the one document of a file."""
    size = file.stat().st_size
    yield FileEntry(size, str(file), _document(file, document_id, size))


def _document(file: Path, document_id: str, size: int) -> Document | Skipped:
    where = str(file)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        return Skipped(where, "not Markdown, text or HTML", is_invalid=False)
    if size > LARGEST_FILE:
        return Skipped(where, f"larger than {LARGEST_FILE} bytes; divide it")
    content = read_text(file)
    if content is None:
        return Skipped(where, "not a text file", is_invalid=False)
    try:
        text, metadata = _page(content, suffix)
    except FrontMatterError as error:
        return Skipped(f"{where}:{error.line}", f"the front matter is not YAML: {error}")
    return Document(document_id, text, metadata)


def _page(content: str, suffix: str) -> FileContent:
    if suffix in HTML:
        text, title = html_page(content)
        return _titled(text, {"title": title} if title else {})
    if suffix in MARKDOWN:
        return _titled(*split_front_matter(content))
    return FileContent(content, {})


def _titled(text: str, metadata: dict[str, Any]) -> FileContent:
    """Return a page whose title is in its metadata and, as a heading, in its text."""
    title = metadata.get("title")
    if title is None:
        heading = _HEADING.search(text)
        return FileContent(text, {**metadata, "title": heading.group(1)} if heading else metadata)
    has_heading = _TOP_HEADING.match(text) is not None
    return FileContent(text if has_heading else f"# {title}\n\n{text}", metadata)


class FrontMatterError(ValueError):
    """Front matter that is not YAML; ``line`` is the line of the file."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


class FileContent(NamedTuple):
    """The text of a file, and its metadata."""

    text: str
    metadata: dict[str, Any]


class _Loader(yaml.SafeLoader):
    """A loader without aliases: a few lines of them may stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)


def split_front_matter(content: str) -> FileContent:
    """Separate the front matter of a file from its text.

    Raises:
        FrontMatterError: It is not YAML.
    """
    match = _FRONT_MATTER.match(content)
    if match is None:
        return FileContent(content, {})
    try:
        metadata = yaml.load(match.group(1), _Loader)
    except yaml.MarkedYAMLError as error:
        line = 2 + (error.problem_mark.line if error.problem_mark else 0)
        raise FrontMatterError(line, error.problem or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FrontMatterError(1, " ".join(str(error).split())) from error
    if not isinstance(metadata, dict):
        # Lines between two thematic breaks are a part of the text.
        return FileContent(content[match.end() :] if metadata is None else content, {})
    return FileContent(content[match.end() :], {str(k): _plain(v) for k, v in metadata.items()})


def _plain(value: Any) -> Any:
    """Return a value of YAML with times as text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | set):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {str(key): _plain(element) for key, element in value.items()}
    return value


_SKIPPED = frozenset({"script", "style", "nav", "template", "noscript", "svg", "iframe", "object"})
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "dd"),
        *("details", "div", "dl", "dt", "fieldset", "figcaption"),
        *("figure", "footer", "form", "header", "hr", "html"),
        *("legend", "main", "p", "section", "summary", "table"),
    }
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_EMPTY_LINES = re.compile(r"\n{3,}")


class HtmlPage(NamedTuple):
    """The text of a page and its title."""

    text: str
    title: str


def html_page(content: str) -> HtmlPage:
    """Return the text of an HTML page, without scripts, styles and navigation."""
    parser = _TextParser()
    parser.feed(content)
    parser.close()
    return parser.page()


class _TextParser(HTMLParser):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._title: list[str] = []
        self._skipped: list[str] = []
        self._lists: list[int] = []  # number of the last item; negative in lists without numbers
        self._is_title = self._is_code = self._is_cell = False
        self._cells = 0

    def page(self) -> HtmlPage:
        lines = "".join(self._parts).split("\n")
        text = _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")
        return HtmlPage(text, _SPACE.sub(" ", "".join(self._title)).strip())

    # The parser calls these.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipped.append(tag)
        elif self._skipped:
            return
        elif tag in _HEADINGS:
            self._break(2)
            self._write(_HEADINGS[tag] + " ")
        elif tag in _BLOCKS:
            self._break(2)
        elif tag == "img":
            self.handle_data(dict(attrs).get("alt") or "")
        elif start := _STARTS.get(tag):
            start(self)

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
        elif self._skipped:
            return
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(2)
        elif end := _ENDS.get(tag):
            end(self)

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        if self._is_title:
            self._title.append(data)
        elif self._is_code:
            self._write(data)
        else:
            text = _SPACE.sub(" ", data)
            self._write(text.lstrip() if self._ends_with((" ", "\n")) else text)

    # Elements

    def start_title(self) -> None:
        self._is_title = True

    def end_title(self) -> None:
        self._is_title = False

    def start_pre(self) -> None:
        self._break(2)
        self._write("```\n")
        self._is_code = True

    def end_pre(self) -> None:
        if self._is_code:
            self._is_code = False
            self._break(1)
            self._write("```")
            self._break(2)

    def mark_code(self) -> None:
        if not self._is_code:
            self._write("`")

    def start_list(self) -> None:
        self._break(1 if self._lists else 2)
        self._lists.append(-1)

    def start_numbers(self) -> None:
        self.start_list()
        self._lists[-1] = 0

    def end_list(self) -> None:
        if self._lists:
            self._lists.pop()
        self._break(1 if self._lists else 2)

    def start_item(self) -> None:
        self._break(1)
        indent = "  " * (len(self._lists) - 1)
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
            self._write(f"{indent}{self._lists[-1]}. ")
        else:
            self._write(f"{indent}- ")

    def end_line(self) -> None:
        self._break(1)

    def start_row(self) -> None:
        self._is_cell = False
        self._break(1)
        self._cells = 0

    def start_cell(self) -> None:
        self._is_cell = True
        self._write("| " if self._ends_with((" ", "\n")) else " | ")
        self._cells += 1

    def end_row(self) -> None:
        self._is_cell = False
        if self._cells:
            self._write("|" if self._ends_with((" ",)) else " |")
            self._cells = 0
        self._break(1)

    # Output

    def _write(self, text: str) -> None:
        if text:
            self._parts.append(text)

    def _ends_with(self, ends: tuple[str, ...]) -> bool:
        return not self._parts or self._parts[-1].endswith(ends)

    def _break(self, lines: int) -> None:
        """End the current line; inside a cell of a table, everything stays in one line."""
        if self._is_cell:
            self._write("" if self._ends_with((" ",)) else " ")
            return
        end = "".join(self._parts[-2:])
        present = len(end) - len(end.rstrip("\n"))
        if self._parts:
            self._write("\n" * (lines - present))


_STARTS: dict[str, Callable[[_TextParser], None]] = {
    "title": _TextParser.start_title,
    "pre": _TextParser.start_pre,
    "code": _TextParser.mark_code,
    "ul": _TextParser.start_list,
    "ol": _TextParser.start_numbers,
    "li": _TextParser.start_item,
    "br": _TextParser.end_line,
    "tr": _TextParser.start_row,
    "td": _TextParser.start_cell,
    "th": _TextParser.start_cell,
}
_ENDS: dict[str, Callable[[_TextParser], None]] = {
    "title": _TextParser.end_title,
    "pre": _TextParser.end_pre,
    "code": _TextParser.mark_code,
    "ul": _TextParser.end_list,
    "ol": _TextParser.end_list,
    "li": _TextParser.end_line,
    "tr": _TextParser.end_row,
    "table": _TextParser.end_row,
}
