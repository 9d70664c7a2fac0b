"""Seeded edits of the features file of a world, each of which knows the declarations it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from proof.world import FEATURES


@dataclass(frozen=True)
class Edit:
    """An edit: texts of the features file that are replaced, and the declarations it changes.

    One that is `unreproducible` changes what only a schedule or the handler of a document could
    tell, so an evaluation has to say that it is not exact.
    """

    kind: str
    declarations: frozenset[str]
    replaced: tuple[tuple[str, str], ...]
    unreproducible: bool = False
    parts: tuple[Edit, ...] = ()
    rebuilt: str = ""
    """The index that has to be built again for it."""

    @property
    def key(self) -> str:
        """Its kind and what it changes."""
        return f"{self.kind}: {', '.join(sorted(self.declarations))}"

    def __add__(self, other: Edit) -> Edit:
        """Return both edits as one."""
        return Edit(
            f"{self.kind} + {other.kind}",
            self.declarations | other.declarations,
            (*self.replaced, *other.replaced),
            self.unreproducible or other.unreproducible,
            (self, other),
        )

    def write(self, folder: Path) -> Path:
        """Write the edited features file to a folder, and return it."""
        text = FEATURES.read_text()
        for old, new in self.replaced:
            assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the file"
            text = text.replace(old, new)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "features.py"
        file.write_text(text)
        return file


UNCHANGED = Edit("unchanged", frozenset(), ())

_TABLE = Path(__file__).with_name("edits.toml")


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A row of the table of edits."""

    kind: str
    names: list[str]
    old: str
    new: list[str]
    unreproducible: bool = False
    rebuilt: str = ""

    def edit(self, random: Random) -> Edit:
        """Return the edit with one of its new texts."""
        return Edit(
            self.kind,
            frozenset(self.names),
            ((self.old, random.choice(self.new)),),
            self.unreproducible,
            rebuilt=self.rebuilt,
        )


def edits(seed: int, number: int) -> Iterator[Edit]:
    """Yield edits: each row of the table once, then pairs of them; equal seeds give equal ones."""
    random = Random(seed)
    rows = msgspec.toml.decode(_TABLE.read_bytes(), type=dict[str, list[_Row]])["edit"]
    singles = [row.edit(random) for row in rows]
    random.shuffle(singles)
    yield from singles[:number]
    for _ in range(number - len(singles)):
        yield _pair(random, [row for row in rows if not (row.unreproducible or row.rebuilt)])


def _pair(random: Random, rows: Sequence[_Row]) -> Edit:
    """Return two edits of different places as one."""
    text = FEATURES.read_text()
    while True:
        first, second = sorted(random.sample(rows, 2), key=lambda row: text.index(row.old))
        if text.index(first.old) + len(first.old) <= text.index(second.old):
            return first.edit(random) + second.edit(random)
