"""Documents from files and folders, checked and in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headwater.errors import InvalidInputError
from headwater.model.indexes import Document
from headwater.retrieval.document_checks import checked_document
from headwater.retrieval.files.entries import FileEntries, FileEntry, Skipped
from headwater.retrieval.files.folders import SUFFIXES, files_in, read_file
from headwater.retrieval.files.tables import Fields, read_csv, read_jsonl, read_parquet
from headwater.settings.groups import IndexSettings

_TABLES: dict[str, Callable[[Path, Fields], FileEntries]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}


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
