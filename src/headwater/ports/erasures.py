"""Erasures: the ledger of erased entities, which every write is compared with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec

from headwater.core.clock import to_micros
from headwater.model.values import UNDATED, Cell, Cells, EntityKey, Part, ServiceEvent
from headwater.ports.events import Subjects, position_order
from headwater.ports.values import Change

DIGEST_BYTES = 16
SECRET_BYTES = 32


class Tombstone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An erased entity, known by a keyed hash: when, after which event, and if it may return.

    ``revision`` is the number of the erasure in the ledger. Events up to ``position`` had been
    accepted before it.
    """

    revision: int
    digest: bytes
    erased_at: int
    position: str
    may_return: bool

    def admits(self, cell: Cell) -> bool:
        """Return whether a value is of after the erasure, and allowed."""
        # A value that was computed from a default is of no moment but that of its computation.
        as_of = cell.written_at if cell.as_of == UNDATED else cell.as_of
        return self.may_return and min(as_of, cell.written_at) > self.erased_at

    def admits_event(self, event: ServiceEvent, position: str | None) -> bool:
        """Return whether an event is of after the erasure, and allowed."""
        if not self.may_return or to_micros(event.timestamp) < self.erased_at:
            return False
        return position is None or position_order(position) > position_order(self.position)


class Ledger:
    """The erasures that a process knows of, up to a revision."""

    def __init__(self) -> None:
        self.revision = 0
        self._secret = b""
        self._tombstones: dict[bytes, Tombstone] = {}

    def add(self, secret: bytes, tombstones: Iterable[Tombstone]) -> None:
        """Add the erasures that are not known yet, in their order; an entity's last one counts."""
        for tombstone in tombstones:
            if tombstone.revision > self.revision:
                self._secret = secret
                self._tombstones[tombstone.digest] = tombstone
                # Last: another thread may read it, and must not miss what it stands for.
                self.revision = tombstone.revision

    def find(self, entity: str, entity_id: str) -> Tombstone | None:
        """Return the last erasure of an entity, or None if it was never erased."""
        if not self._tombstones:
            return None
        return self._tombstones.get(erasure_digest(self._secret, entity, entity_id))

    def admitted(
        self, changes: Sequence[Change], has_values: Callable[[EntityKey], bool]
    ) -> Admitted:
        """Return the changes that may be written, given whether an entity has values."""
        if not self._tombstones:
            return Admitted(changes, {})
        tombstones = {key: self.find(*key) for key in {change.key for change in changes}}
        kept: list[Change] = []
        dropped: dict[Tombstone, int] = {}
        for change in changes:
            tombstone = tombstones[change.key]
            if tombstone is None or (
                tombstone.admits(change.cell) and (change.begins or has_values(change.key))
            ):
                kept.append(change)
            else:
                dropped[tombstone] = dropped.get(tombstone, 0) + 1
        return Admitted(kept, dropped)

    def admitted_cells(self, key: EntityKey, cells: Cells) -> Cells:
        """Return the values of an entity that may be written."""
        tombstone = self.find(*key)
        if tombstone is None:
            return cells
        return {series: cell for series, cell in cells.items() if tombstone.admits(cell)}

    def admits(self, key: EntityKey, cell: Cell | None) -> bool:
        """Return whether a value of an entity may be written; None is the removal of one."""
        tombstone = self.find(*key)
        return tombstone is None or cell is None or tombstone.admits(cell)

    def erased_since(self, revision: int, read: Collection[Part]) -> Tombstone | None:
        """Return a later erasure of an entity that was read, or may have been, or None."""
        entities = {(part[1], part[-1]) for part in read if part[0] in ("feature", "entity")}
        tombstones = [self.find(*key) for key in entities]
        if any(part[0] in _OF_ANYONE for part in read):
            tombstones += list(self._tombstones.values())  # another thread may add one
        return next(
            (tombstone for tombstone in tombstones if tombstone and tombstone.revision > revision),
            None,
        )

    def voiding(
        self, event: ServiceEvent, subjects: Subjects, position: str | None = None
    ) -> Tombstone | None:
        """Return the erasure because of which an event has no effect, or None.

        ``position`` is that of an accepted event.
        """
        if not self._tombstones:
            return None
        for key in subjects(event):
            tombstone = self.find(*key)
            if tombstone is not None and not tombstone.admits_event(event, position):
                return tombstone
        return None


_OF_ANYONE = frozenset({"event", "key", "everything"})
"""The kinds of sources that may be about an entity without its name."""


class Admitted(msgspec.Struct, frozen=True):
    """Changes that may be written, and the number of forbidden ones."""

    changes: Sequence[Change]
    dropped: Mapping[Tombstone, int]


def erasure_digest(secret: bytes, entity: str, entity_id: str) -> bytes:
    """Return the keyed hash of an entity, so that the ledger does not keep its id."""
    hashed = blake2b(key=secret, digest_size=DIGEST_BYTES)
    hashed.update(f"{entity}\0{entity_id}".encode(errors="surrogatepass"))
    return hashed.digest()


class Erasures(Protocol):
    """The ledger of erased entities, which outlives the data that was erased.

    From the return of ``erase`` on, no writer of any process writes a value, a past value or a
    record of the entity that was computed before. What was written until then can be erased, and
    stays erased. A value of before the erasure is never written again; one of after it only if
    ``may_return``.
    """

    ledger: Ledger
    """What this process knows of; writers that know less than the store are refused."""

    async def erase(self, entity: str, entity_id: str, *, at: int, may_return: bool) -> None:
        """Add an erasure, in place of an earlier one of the entity."""

    async def refresh(self) -> Ledger:
        """Return the ledger with all erasures that returned before the call."""
