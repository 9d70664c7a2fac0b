"""The ids of frames are checked by SQL as the ids of events are by Python."""

from __future__ import annotations

from itertools import product

import duckdb

from headwater.core.short_repr import is_printable
from headwater.history import points

# A Latin and two Arabic letters, an Arabic mark and digit, a virama, both joiners, a control
# character, an end of line, a space and another one.
CHARACTERS = "a\u06cc\u062e\u064e\u06f1\u094d\u200c\u200d\u200b\n \u00a0"


def test_an_id_that_events_may_have_is_accepted_in_frames() -> None:
    texts = [
        "".join(letters) for size in (1, 2, 3, 4) for letters in product(CHARACTERS, repeat=size)
    ]
    with duckdb.connect() as duck:
        query = f"SELECT value FROM unnest($1) AS frame(value) WHERE {points.INVALID_TEXT}"
        refused = {text for (text,) in duck.execute(query, [texts]).fetchall()}
    assert {text for text in texts if not is_printable(text)} == refused
