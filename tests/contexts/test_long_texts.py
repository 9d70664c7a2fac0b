"""Long texts are tokenised in a thread, and while they are, the event loop runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from headwater import ContextItem, FeatureStore, context
from headwater.core import tokens
from headwater.core.encodings import encoding
from headwater.core.tokens import tokenizer_for
from tests.core.token_texts import EXACT, fresh_count

LONG = "The parcel left the warehouse on Monday. " * 1_000


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads in which texts are counted from now on."""
    threads: set[str] = set()
    count = tokens._count  # noqa: SLF001 - the one place where every text is counted

    def noted(name: str, text: str) -> int:
        threads.add(threading.current_thread().name)
        return count(name, text)

    monkeypatch.setattr(tokens, "_count", noted)
    return threads


@pytest.mark.both_environments
async def test_a_long_text_is_counted_off_the_event_loop(
    store: FeatureStore, counting: set[str]
) -> None:
    here = threading.current_thread().name

    @context(store, model="gpt-4o", max_tokens=100)
    async def long(text: str) -> list[ContextItem]:
        return [ContextItem("Be brief.", required=True), ContextItem(text, truncate=True)]

    made = await long(f"{uuid4()} {LONG}")
    assert made.lineage.items_truncated == 1
    assert counting
    assert here not in counting
    counting.clear()
    assert (await store.replay(made.context_id, "reassemble")).matches
    assert here not in counting
    counting.clear()
    await long(f"A text that was not counted before: {uuid4()}")
    assert counting == {here}


def test_a_long_text_is_counted_without_the_interpreter_lock() -> None:
    tokenizer = tokenizer_for("gpt-4o")
    tokenizer.load()
    letters = random.Random(7)
    # Words that are not in the vocabulary, without a break: the slowest text to count.
    text = "".join(letters.choices("กขคงจฉชซฌญดตถทธ", k=200_000))
    # A busy machine may stop this thread for as long as the other one counts, but not each time.
    assert any(runs_meanwhile(lambda: tokenizer.recount(text)) for _ in range(50))


def runs_meanwhile(count: Callable[[], object]) -> bool:
    """Return whether this thread runs in the middle of the time in which another one counts."""
    span: list[float] = []

    def measured() -> None:
        span.append(time.perf_counter())
        count()
        span.append(time.perf_counter())

    thread = threading.Thread(target=measured)
    ran: list[float] = []
    thread.start()
    while thread.is_alive():
        ran.append(time.perf_counter())
        time.sleep(0)
    start, end = span
    # A thread that waits for the lock runs only before and after.
    return any(start + (end - start) / 4 < moment < end - (end - start) / 4 for moment in ran)


@pytest.mark.parametrize("special", ["", "<|endoftext|>"])
def test_shortening_never_encodes_a_long_text_under_the_interpreter_lock(
    monkeypatch: pytest.MonkeyPatch, special: str
) -> None:
    tokenizer = tokenizer_for("gpt-4o")
    locked: list[int] = []
    counted = encoding(tokenizer.name)
    count = counted.count  # the one call that keeps the lock

    def noted(text: str) -> int:
        locked.append(len(text))
        return count(text)

    monkeypatch.setattr(counted, "count", noted)
    text = special + "".join(random.Random(7).choices("กขคงจฉชซฌญดตถทธ", k=20_000))
    short = tokenizer.shorten(text, 5_000)
    assert short is not None
    assert short.startswith(special)
    assert 4_900 < fresh_count(tokenizer, short) <= 5_000
    assert all(length <= tokens._PIECE for length in locked)  # noqa: SLF001


@pytest.mark.parametrize("tokenizer", EXACT, ids=lambda tokenizer: tokenizer.name)
@pytest.mark.parametrize(
    "text",
    [
        LONG,
        "a <|endoftext|> b | c\n" * 2_000,
        '{"a":[1,2,"x|y"]},' * 3_000,
        "พัสดุออกจากคลังสินค้า" * 1_000,
        "one\n\n/two  three\t" * 2_000,
        "a\ud800b \ud83d\ude00 " * 3_000,
        " " * 20_000,
        "x" * 20_000,
    ],
    ids=range(8),
)
def test_pieces_of_a_long_text_count_as_the_whole(text: str, tokenizer: tokens.Tokenizer) -> None:
    assert tokenizer.recount(text) == fresh_count(tokenizer, text)


def test_loading_builds_the_tables_for_words_that_are_not_tokens() -> None:
    tokenizer = EXACT[1]
    tokenizer.load()
    began = time.thread_time()
    tokenizer.recount("qzqzqzqzqzqzqzqzvvbb")
    # Building them takes a hundred times as long as counting.
    assert time.thread_time() - began < 0.05
