"""Evidence: recorded contexts found, shown, verified, explained, replayed, compared and redacted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.ports import RecordSummary


class ContextPage(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded contexts, the newest first, and where the list goes on."""

    contexts: Sequence[RecordSummary]
    next_cursor: str | None
