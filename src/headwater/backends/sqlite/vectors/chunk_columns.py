"""The small columns of a generation's chunks, kept in memory and brought up to date by searches."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors.document_writes import SEQ_BITS

Integers = NDArray[np.int64]

NEVER = 2**63 - 1
_PORTION = 50_000
_FIRST_CAPACITY = 1_024
_SEQ_MASK = (1 << SEQ_BITS) - 1

_NEW = f"""
SELECT id & {_SEQ_MASK}, valid_from, ifnull(valid_to, {NEVER}), length, metadata_id
FROM chunks WHERE id > ? AND id < ? ORDER BY id
"""
_ENDED = f"""
SELECT id & {_SEQ_MASK}, valid_to FROM chunks
WHERE id >> {SEQ_BITS} = ? AND valid_to IS NOT NULL AND valid_to > ?
"""
_PRUNED_BEFORE = "SELECT pruned_before FROM generations WHERE id = ?"


class GenerationState(NamedTuple):
    """The row of a generation as a search begins."""

    index_id: int
    id: int
    dimensions: int
    changed_at: int
    pruned_before: int
    last_seq: int
    is_active: bool

    @property
    def first_id(self) -> int:
        """The id of the chunk before the first one."""
        return self.id << SEQ_BITS


class ColumnsView(NamedTuple):
    """The columns of all chunks up to a moment, by their number in the generation less one.

    Later changes do not affect a search as of the moment: they only end chunks after it.
    """

    valid_from: Integers
    valid_to: Integers
    lengths: Integers
    metadata_ids: Integers
    has_gaps: bool

    def current(self, moment: int) -> NDArray[np.bool_] | None:
        """Return which chunks were current at a moment; None if all were."""
        size = len(self.valid_from)
        if not self.has_gaps and (not size or self.valid_from[-1] <= moment):
            return None
        return (self.valid_from <= moment) & (self.valid_to > moment)


class ChunkColumns:
    """The columns of one generation; a chunk that was removed is never current."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed_at = -1
        self._clear()

    def _clear(self) -> None:
        self._size = 0
        self._columns = np.empty((4, 0), np.int64)
        self._pruned_before = 0
        self._has_gaps = False

    def is_current(self, state: GenerationState) -> bool:
        """Return whether the columns have all changes until the state."""
        return self._changed_at >= state.changed_at

    def refreshed(self, home: Home, state: GenerationState) -> ColumnsView:
        """Return the columns with at least all changes until the state."""
        with self._lock:
            if state.changed_at > self._changed_at:
                self._end(home, state)
                self._add(home, state)
                self._changed_at = state.changed_at
            if state.pruned_before > self._pruned_before:
                self._prune(state.pruned_before)
            valid_from, valid_to, lengths, metadata_ids = self._columns[:, : self._size]
            return ColumnsView(valid_from, valid_to, lengths, metadata_ids, self._has_gaps)

    def _end(self, home: Home, state: GenerationState) -> None:
        """Set the ends of the chunks that ended since the last refresh."""
        if not self._size:
            return
        rows = home.read(_ENDED, (state.id, self._changed_at))
        # Read after the rows: a chunk that has ended and was removed since then is not among them.
        pruned = home.read(_PRUNED_BEFORE, (state.id,))
        if not pruned or pruned[0][0] > self._changed_at:
            self._clear()
            return
        for seq, valid_to in rows:
            if seq <= self._size:
                self._columns[1, seq - 1] = valid_to
                self._has_gaps = True

    def _add(self, home: Home, state: GenerationState) -> None:
        bounds = (state.first_id + self._size, state.first_id + (1 << SEQ_BITS))
        with home.translated():
            cursor = home.reader.execute(_NEW, bounds)
            while rows := cursor.fetchmany(_PORTION):
                self._append(np.array(rows, np.int64).T)

    def _append(self, rows: Integers) -> None:
        seqs = rows[0]
        size = int(seqs[-1])
        if size > self._columns.shape[1]:
            capacity = max(size, 2 * self._columns.shape[1], _FIRST_CAPACITY)
            grown = np.full((4, capacity), NEVER, np.int64)
            grown[3] = 0
            grown[:, : self._size] = self._columns[:, : self._size]
            self._columns = grown
        self._columns[:, seqs - 1] = rows[1:]
        self._has_gaps |= len(seqs) < size - self._size or bool((rows[2] != NEVER).any())
        self._size = size

    def _prune(self, before: int) -> None:
        self._pruned_before = before
        valid_from, valid_to = self._columns[:2, : self._size]
        valid_from[valid_to < before] = NEVER
