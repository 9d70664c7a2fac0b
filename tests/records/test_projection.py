"""The summary sentence of a record."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from headwater.records.core import Core
from headwater.records.projection import CountedTokens, explain
from headwater.records.sealing import seal
from verifier.generator.samples import sample


def _degraded(reasons: Sequence[str]) -> Core:
    core = sample()
    (known,) = core.freshness.violations
    violations = tuple(msgspec.structs.replace(known, reason=reason) for reason in reasons)
    status = "degraded" if reasons else "guaranteed"
    freshness = msgspec.structs.replace(core.freshness, status=status, violations=violations)
    return msgspec.structs.replace(core, freshness=freshness)


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ([], "guaranteed"),
        (["default"], "degraded (1 defaulted)"),
        (["stale"], "degraded (1 too old)"),
        (["missing", "missing"], "degraded (2 missing)"),
        (["default", "stale", "missing", "stale"], "degraded (2 too old, 1 missing, 1 defaulted)"),
    ],
)
def test_the_summary_says_why_a_context_is_not_fresh(reasons: list[str], said: str) -> None:
    core = _degraded(reasons)
    counted = CountedTokens([None] * len(core.items), None)
    assert explain(seal(core), core, {}, counted).summary.endswith(f"; freshness {said}")
