"""Checksums of segments, and how a file differs from the one that was written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.errors import HomeError
from headwater.ports import FileChecksum, Segment

# The footer of a Parquet file is at its end. It has the smallest and the largest sequence number of
# every part, so two segments never have the same.
_ENDING_BYTES = 1 << 16


def checksum_of(file: Path) -> FileChecksum:
    """Return the size of a file, and digests of its end and of all its bytes."""
    with file.open("rb") as content:
        size, ending = _end_of(content.fileno())
        return FileChecksum(size, ending, hashlib.file_digest(content, "sha256").digest())


def damage_of(folder: Path, segment: Segment, *, is_whole: bool) -> str | None:
    """Return the problem of the file of a segment, or None.

    The size and the end are checked in a moment, and show a file that was exchanged or truncated;
    all bytes only with ``is_whole``. Raises FileNotFoundError if there is no file.
    """
    written = segment.checksum
    with (folder / segment.name).open("rb") as content:
        if written is None:
            return None
        size, ending = _end_of(content.fileno())
        if size != written.size:
            return f"{segment.name} has {size} bytes in place of {written.size}"
        if ending != written.ending:
            return f"{segment.name} is another file of the same size, or its end is damaged"
        if is_whole and hashlib.file_digest(content, "sha256").digest() != written.digest:
            return f"{segment.name} has bytes that changed since it was written"
    return None


def _end_of(handle: int) -> tuple[int, bytes]:
    size = os.fstat(handle).st_size
    ending = os.pread(handle, _ENDING_BYTES, max(0, size - _ENDING_BYTES))
    return size, hashlib.sha256(ending).digest()


def damage_in(folder: Path, segments: Iterable[Segment], *, is_whole: bool) -> list[str]:
    """Return the problems of the files of these segments, also of missing ones."""
    damages = []
    for segment in segments:
        try:
            damage = damage_of(folder, segment, is_whole=is_whole)
        except FileNotFoundError:
            damage = f"{segment.name} is missing"
        if damage is not None:
            damages.append(damage)
    return damages


def damaged_error(folder: Path, damage: Sequence[str]) -> HomeError:
    """Return the error about files that are not the ones that were written."""
    return HomeError(
        str(folder),
        f"is damaged: {', '.join(damage)}",
        "stop all processes and restore these files from a backup of the same folder; "
        "`headwater audit` checks every file",
    )
