"""Errors that differ only in ids, numbers and texts have one pattern."""

from __future__ import annotations

import pytest

from headwater.core.error_patterns import error_pattern


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("KeyError: 'item'", "KeyError: 'item'"),
        ("KeyError: 'user-name'", "KeyError: 'user-name'"),
        ("ValueError: order 17 costs -4.50", "ValueError: order <n> costs <n>"),
        ("no record 01a1de13-6731-767b-b9ee-76ce545fa0ef", "no record <id>"),
        ("<Feature object at 0x7f3a2b> failed", "<Feature object at <id>> failed"),
        ("late since 2026-01-15T09:23:12Z", "late since <time>"),
        ("late since 2026-01-15 09:23:12.5+01:00", "late since <time>"),
        ("bad text: 'Ada Lovelace, 12'", "bad text: '<text>'"),
        ('bad text: "x y" and "z"', 'bad text: "<text>" and "z"'),
        ("user12 is unknown", "user<n> is unknown"),
        ("first line 1\nsecond line", "first line <n>"),
        ("", ""),
    ],
)
def test_the_parts_that_vary_are_replaced(error: str, pattern: str) -> None:
    assert error_pattern(error) == pattern


def test_a_pattern_has_a_limited_length() -> None:
    assert len(error_pattern("x" * 10_000)) == 300
