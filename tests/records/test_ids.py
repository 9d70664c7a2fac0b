"""Ids of contexts: UUIDv7 that only ever grow."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headwater.records.ids import ContextIds


def time_of(context_id: str) -> int:
    """Return the millisecond of an id."""
    return int(context_id[:8] + context_id[9:13], 16)


def test_an_id_is_a_uuid_of_version_7_with_its_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    made = UUID(ContextIds().new())
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1
    assert time_of(str(made)) == made.int >> 80


@given(st.lists(st.integers(0, 2**48 - 2), min_size=2, max_size=50))
def test_ids_grow_even_when_the_clock_steps_back(moments: list[int]) -> None:
    ids = ContextIds()
    made = [ids.new(moment) for moment in moments]
    assert all(one < two for one, two in pairwise(made))
    assert all(UUID(each).version == 7 for each in made)


def test_ids_grow_when_the_counter_of_a_millisecond_overflows() -> None:
    ids = ContextIds()
    made = [ids.new(1_000) for _ in range(10_000)]
    assert all(one < two for one, two in pairwise(made))
    assert time_of(made[0]) == 1_000


def test_an_id_of_a_later_millisecond_has_that_millisecond() -> None:
    ids = ContextIds()
    assert [time_of(ids.new(moment)) for moment in (5, 6, 6, 9, 7)] == [5, 6, 6, 9, 9]


def test_threads_never_share_an_id_and_each_sees_them_grow() -> None:
    ids = ContextIds()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [ids.new() for _ in range(2_000)], range(8)))
    assert all(one < two for each in made for one, two in pairwise(each))
    assert len({each for part in made for each in part}) == 16_000


def test_processes_that_ask_at_the_same_millisecond_get_different_ids() -> None:
    made = {ContextIds().new(1_000) for _ in range(5_000)}
    assert len(made) == 5_000


def test_a_child_process_makes_ids_although_its_parent_held_the_lock() -> None:
    ids = ContextIds()
    last = ids.new()
    with ids._lock:  # noqa: SLF001
        ids.after_fork()
        assert ids.new() > last
