"""The places that keep data of an entity."""

from __future__ import annotations

from collections.abc import Iterator

from dev.reference.tables import NONE, code, table
from headwater.engine.places import PLACES, DataPlace

_EMBEDDED = {"sqlite": "tables ", "file": "files ", "other": ""}
_SERVERS = {"redis": "keys ", "postgres": "tables ", "other": ""}
_PRIVATE = {
    "clear": "as it is",
    "partly": "without what contexts were given and found",
    "hashed": "hashes only",
    "absent": "in memory only",
}


def places() -> Iterator[str]:
    """Yield the table of places."""
    return table(
        ("place", "keeps", "embedded", "servers", "`forget`", "`prune`", "export", "private"),
        (
            (
                place.name,
                place.keeps,
                _named(place, _EMBEDDED),
                _named(place, _SERVERS),
                place.erased,
                place.pruned,
                place.exported,
                _PRIVATE[place.private],
            )
            for place in PLACES
        ),
    )


def _named(place: DataPlace, kinds: dict[str, str]) -> str:
    """Return the tables, keys and files of one environment."""
    found = [pattern.split(":", 1) for pattern in place.where]
    parts = {kind: [name for each, name in found if each == kind] for kind in kinds}
    named = [
        f"{kinds[kind]}{code(*names) if kinds[kind] else ', '.join(names)}"
        for kind, names in parts.items()
        if names
    ]
    return "; ".join(named) or NONE
