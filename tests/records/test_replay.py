"""Replays of a core alone: `matches` compares the text with its hash."""

from __future__ import annotations

import msgspec

from headwater.contexts.recorded.replay import show
from headwater.records.core import Core
from headwater.records.sealing import open_core, seal
from verifier.generator.samples import sample

CORE = open_core(seal(sample()))


def saying(text: str) -> Core:
    return msgspec.structs.replace(CORE, output=msgspec.structs.replace(CORE.output, content=text))


def test_the_recorded_text_is_exact_and_another_one_is_broken() -> None:
    assert show(CORE).fidelity.startswith("exact")
    shown = show(saying("a fake text"))
    assert (shown.content, shown.matches) == ("a fake text", False)
    assert shown.fidelity.startswith("broken")
