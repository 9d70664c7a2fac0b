"""Documents from files and folders, checked and in a fixed order."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from headwater.errors import InvalidInputError
from headwater.model.indexes import Document
from headwater.retrieval.document_checks import checked_document
from headwater.retrieval.files.encodings import read_text
from headwater.retrieval.files.entries import LARGEST_FILE, FileEntries, FileEntry, Skipped
from headwater.retrieval.files.html_text import html_page
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


def _page(content: str, suffix: str) -> FileText:
    if suffix in HTML:
        text, title = html_page(content)
        return _titled(text, {"title": title} if title else {})
    if suffix in MARKDOWN:
        return _titled(*split_front_matter(content))
    return FileText(content, {})


def _titled(text: str, metadata: dict[str, Any]) -> FileText:
    """Return a page whose title is in its metadata and, as a heading, in its text."""
    title = metadata.get("title")
    if title is None:
        heading = _HEADING.search(text)
        return FileText(text, {**metadata, "title": heading.group(1)} if heading else metadata)
    has_heading = _TOP_HEADING.match(text) is not None
    return FileText(text if has_heading else f"# {title}\n\n{text}", metadata)


class FrontMatterError(ValueError):
    """Front matter that is not YAML; ``line`` is the line of the file."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


class FileText(NamedTuple):
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


def split_front_matter(content: str) -> FileText:
    """Separate the front matter of a file from its text.

    Raises:
        FrontMatterError: It is not YAML.
    """
    match = _FRONT_MATTER.match(content)
    if match is None:
        return FileText(content, {})
    try:
        metadata = yaml.load(match.group(1), _Loader)
    except yaml.MarkedYAMLError as error:
        line = 2 + (error.problem_mark.line if error.problem_mark else 0)
        raise FrontMatterError(line, error.problem or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FrontMatterError(1, " ".join(str(error).split())) from error
    if not isinstance(metadata, dict):
        # Lines between two thematic breaks are a part of the text.
        return FileText(content[match.end() :] if metadata is None else content, {})
    return FileText(content[match.end() :], {str(k): _plain(v) for k, v in metadata.items()})


def _plain(value: Any) -> Any:
    """Return a value of YAML with times as text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | set):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {str(key): _plain(element) for key, element in value.items()}
    return value
