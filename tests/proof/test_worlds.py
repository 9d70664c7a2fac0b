"""The worlds of the proof: equal seeds are lived equally, and every edit is a features file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from proof.edits import UNCHANGED, edits
from proof.world import beginning, history, live

EDITS = 100


@pytest.mark.both_environments
async def test_a_world_shows_the_same_texts_when_it_is_lived_again(
    settings: Settings, tmp_path: Path
) -> None:
    file, begin, steps = UNCHANGED.write(tmp_path), beginning(), history(7, 40)
    once = await live(file, settings, begin, steps)
    embedded = Settings().replace(home=tmp_path / "again", partitions=4)
    again = await live(file, embedded, begin, steps)
    texts = [(seen.outcome, seen.tokens, seen.values) for seen in once if seen.name != "urgent"]
    assert texts == [
        (seen.outcome, seen.tokens, seen.values) for seen in again if seen.name != "urgent"
    ]
    assert {seen.name for seen in once} == {"support", "profile", "urgent", "ticket", "chat"}


def test_every_edit_changes_the_file_and_can_be_loaded(tmp_path: Path) -> None:
    made = list(edits(7, EDITS))
    assert len(made) == EDITS
    assert {"handler", "template", "default", "budget", "priority", "retriever option", "type"} <= {
        edit.kind for edit in made
    }
    for number, edit in enumerate(made):
        load_store(edit.write(tmp_path / str(number)))
