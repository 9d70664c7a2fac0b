"""The embeddings of a generation in memory-mapped files, which every process of a home shares.

A file holds the vectors of a fixed range of chunks. Neither they nor their order ever change, so a
file can be made again from the database at any time, by any process, and is always the same.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors.block_files import block_name
from headwater.backends.sqlite.vectors.chunk_columns import (
    NEVER,
    ColumnsView,
    GenerationState,
    Integers,
)
from headwater.core.logging import log

Vectors = NDArray[np.float32]

BLOCK_BYTES = 32 << 20
_HEADER = struct.Struct("<8sQQQQQ16x")
_MAGIC = b"HWBLOCK1"
_PORTION = 1_024

_EMBEDDINGS = """
SELECT id, embedding FROM chunk_embeddings WHERE id > ? AND id <= ? ORDER BY id
"""


class VectorBlocks:
    """The vectors of one generation: complete blocks are mapped, the rest is kept in memory."""

    def __init__(self, home: Home, state: GenerationState) -> None:
        self._home = home
        self._generation = state.id
        self._first_id = state.first_id
        self._dimensions = state.dimensions
        self.rows = max(1, BLOCK_BYTES // (4 * state.dimensions))
        self._lock = threading.Lock()
        self._mapped: dict[int, Vectors] = {}
        self._tail_start = self._tail_stop = 0
        self._tail: Vectors = np.empty((0, state.dimensions), np.float32)

    def ranges(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of positions that are read together."""
        for start in range(0, size, self.rows):
            yield start, min(start + self.rows, size)

    def vectors(self, start: int, stop: int, view: ColumnsView) -> Vectors:
        """Return the vectors of one of the ranges."""
        with self._lock:
            if stop - start < self.rows:
                return self._read_tail(start, stop)
            block = self._mapped.get(start)
            if block is None:
                times = view.valid_from[start:stop]
                block = self._map(start, times)
                if block is None:
                    block = self._build(start, times)
            return block

    def _read_tail(self, start: int, stop: int) -> Vectors:
        if start != self._tail_start or not len(self._tail):
            self._tail = np.zeros((self.rows, self._dimensions), np.float32)
            self._tail_start = self._tail_stop = start
        if stop > self._tail_stop:
            self._fill(self._tail, start, self._tail_stop, stop)
            self._tail_stop = stop
        return self._tail[: stop - start]

    def _fill(self, vectors: Vectors, start: int, first: int, stop: int) -> None:
        """Read the vectors of the positions from first to stop; missing ones stay 0."""
        ids = (self._first_id + first, self._first_id + stop)
        with self._home.translated():
            cursor = self._home.reader.execute(_EMBEDDINGS, ids)
            while rows := cursor.fetchmany(_PORTION):
                positions = np.array([id_ for id_, _ in rows], np.int64) - self._first_id - 1
                joined = np.frombuffer(b"".join([embedding for _, embedding in rows]), "<f4")
                vectors[positions - start] = joined.reshape(len(rows), self._dimensions)

    def _header(self, start: int, checksum: int) -> bytes:
        range_ = (self._generation, start, self.rows, self._dimensions)
        return _HEADER.pack(_MAGIC, *range_, checksum)

    def _file(self, start: int) -> Path:
        return self._home.vectors / block_name(self._generation, start + 1, start + self.rows)

    def _map(self, start: int, times: Integers) -> Vectors | None:
        """Return the vectors in a file; None if it is missing, damaged or of another history."""
        try:
            with open(self._file(start), "rb") as file:
                buffer = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):  # ValueError: the file is empty
            return None
        times_end = _HEADER.size + 8 * self.rows
        if len(buffer) != times_end + 4 * self.rows * self._dimensions:
            return None
        kept_times = np.frombuffer(buffer[_HEADER.size : times_end], "<i8")
        is_same = (kept_times == times) | (times == NEVER)
        expected = self._header(start, zlib.crc32(buffer[_HEADER.size :]))
        if buffer[: _HEADER.size] != expected or not is_same.all():
            return None
        vectors: Vectors = np.frombuffer(buffer[times_end:], "<f4")
        self._mapped[start] = vectors.reshape(self.rows, self._dimensions)
        return self._mapped[start]

    def _build(self, start: int, times: Integers) -> Vectors:
        """Write the file of a block; return its vectors, mapped if they could be written."""
        vectors = np.zeros((self.rows, self._dimensions), np.float32)
        self._fill(vectors, start, start, start + self.rows)
        content = (times.astype("<i8").tobytes(), vectors.astype("<f4", copy=False).tobytes())
        header = self._header(start, zlib.crc32(content[1], zlib.crc32(content[0])))
        file = self._file(start)
        temporary = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            # Not synced: a file that a crash damages fails its checksum and is written again.
            with open(temporary, "wb", opener=_private) as out:
                out.writelines([header, *content])
            temporary.rename(file)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            log.warning("vector block not written; searching is slower", error=str(error))
            return vectors
        mapped = self._map(start, times)
        return vectors if mapped is None else mapped


def _private(file: str, flags: int) -> int:
    return os.open(file, flags, 0o600)
