"""Entries of files, documents or parts that are not one, and the encoding of text files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from headwater.model.indexes import Document

LARGEST_FILE = 256 * 1024 * 1024
"""Most bytes of a text file, or of a line; larger ones would not fit into memory."""


class Skipped(msgspec.Struct, frozen=True):
    """A part of a file that is not a document.

    ``is_invalid`` is False for files that are not expected to be documents, such as images.
    """

    where: str
    problem: str
    is_invalid: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class FileEntry(NamedTuple):
    """A document or a part that was skipped, and how many bytes of the file were read for it."""

    position: int
    where: str
    content: Document | Skipped


FileEntries: TypeAlias = Iterator[FileEntry]


_BLOCK = 1024 * 1024
_PROBE = 8_192
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)


def encoding_of(file: Path) -> str | None:
    """Return the encoding of a file, or None if it is not a text."""
    with file.open("rb") as opened:
        start = opened.read(_PROBE)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if b"\0" in start:
            return None
        decoder = codecs.getincrementaldecoder("utf-8")()
        block = start
        try:
            while block:
                decoder.decode(block)
                block = opened.read(_BLOCK)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return _declared(start) or "latin-1"
    return "utf-8-sig"


def read_text(file: Path) -> str | None:
    """Return the content of a file, or None if it is not a text."""
    encoding = encoding_of(file)
    return None if encoding is None else file.read_bytes().decode(encoding, errors="replace")


def _declared(start: bytes) -> str | None:
    """Return the encoding that an HTML page names."""
    match = _CHARSET.search(start)
    if match is None:
        return None
    try:
        return codecs.lookup(match.group(1).decode()).name
    except LookupError:
        return None
