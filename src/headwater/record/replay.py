"""Replays of a record: its text as stored, or made again from what is stored. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.lineage import Context
from headwater.record.diff import Diff

Mode = Literal["show", "reassemble", "as_of", "live"]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A context once more: what came of it, and how far that can be relied on.

    ``matches`` says whether the text is the recorded one, None where that cannot be said.
    """

    context_id: str
    mode: Mode
    fidelity: str
    content: str | None
    content_hash: str | None
    matches: bool | None
    context: Context | None = None
    differences: Diff | None = None
