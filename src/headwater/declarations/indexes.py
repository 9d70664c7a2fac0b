"""Declared indexes: how their documents are split and embedded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from headwater.errors.hints import Location

EmbedFunction = Callable[[list[str]], Any]
"""A function that returns one vector for each text, or an awaitable of these."""

_KEEP = timedelta(days=30)


class IndexDef(msgspec.Struct, frozen=True, kw_only=True):
    """A declared index and its options.

    ``embedder`` is a provider, a provider and its model (``openai/text-embedding-3-small``), a
    function, or None for the provider of the settings.
    """

    name: str
    location: Location
    embedder: str | EmbedFunction | None = None
    model: str | None = None
    dimensions: int | None = None
    chunk_tokens: int = 400
    overlap: int = 40
    keep_versions: timedelta = _KEEP
