"""Entries of files: documents, and parts that are not one."""

from __future__ import annotations

from collections.abc import Iterator
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
