"""The catalog: the versions of every feature, and which of them is and was served."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec

from headwater.errors import BackendError
from headwater.model.catalog import (
    CatalogState,
)


class NamedSpan(msgspec.Struct, frozen=True):
    """A row of ``feature_names``: what a feature was from one moment to another."""

    feature: str
    entity: str
    version: int | None
    series: str | None
    default_value: str | None
    since: datetime
    until: datetime | None


def named_spans(state: CatalogState) -> Iterator[NamedSpan]:
    """Yield the meanings of all features over time, also of dropped ones."""
    lives = [(entry.meanings, None) for entry in state.features.values()]
    for meanings, end in (
        *lives,
        *((dropped.meanings, dropped.dropped_at) for dropped in state.dropped),
    ):
        ends = [*(meaning.since for meaning in meanings[1:]), end]
        for meaning, until in zip(meanings, ends, strict=True):
            yield NamedSpan(
                *(meaning.name, meaning.entity, meaning.version, meaning.series, meaning.default),
                *(meaning.since, until),
            )


encode_catalog = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CatalogState).decode


def decode_catalog(text: bytes | str) -> CatalogState:
    """Return a stored catalog.

    Raise BackendError if it has fields that this version does not know: stored again, it would
    be without them.
    """
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        raise BackendError(
            f"the catalog of features was written by a newer version of Headwater ({error}); "
            "upgrade Headwater here"
        ) from error


class Catalog(Protocol):
    """One small document that all processes of a store share; every change is one replacement."""

    async def load(self) -> CatalogState:
        """Return the catalog; an empty one if there is none yet.

        Raises BackendError if it was written by a newer version of Headwater.
        """

    async def revision(self) -> int:
        """Return the revision of the catalog, which every change raises by one."""

    async def replace(self, state: CatalogState) -> bool:
        """Store a catalog durably if its revision is the next one; return whether it was.

        If not, another process was faster: load the catalog and decide again.
        """
