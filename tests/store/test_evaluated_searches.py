"""Evaluations of contexts that search: no model outside of the process is called for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater import Settings
from headwater.testing import ManualClock
from tests.store.evaluating import Former
from tests.store.test_evaluated_contexts import facts, text_after

FEATURES = """
from pathlib import Path

from headwater import ContextItem, FeatureStore, Index, context, retriever

store = FeatureStore()
CALLS = Path({calls!r})


async def embed(texts: list[str]) -> list[list[float]]:
    CALLS.touch()
    return [[1.0, float(len(text)), float(text.count("e"))] for text in texts]


Index(store, "help", embedder=embed, dimensions=3, model="counted-1")


@retriever(store, index="help", query="{{question}}", top_k=3)
async def articles(question: str): ...


@context(store, max_tokens=200)
async def support(question: str) -> list[ContextItem]:
    found = await articles(question)
    return [ContextItem(one.text + " by " + one.metadata["by"], source=one) for one in found]
"""


@pytest.fixture
def text(tmp_path: Path) -> str:
    """The former features file."""
    return FEATURES.format(calls=str(tmp_path / "calls"))


@pytest.fixture
async def former(
    tmp_path: Path, settings: Settings, clock: ManualClock, text: str
) -> AsyncIterator[Former]:
    """A context of three documents, after which the function that embeds must not be called."""
    former = Former(tmp_path, settings, clock)
    async with await former.open(text) as store:
        for name in ("one", "two", "three"):
            await store.index("help", name, f"Article {name}.", {"by": "ann"})
        await store.drain()
        clock.advance("1s")
        await former.assemble("support", question="Where is it?")
        (tmp_path / "calls").unlink()
        yield former
        assert not (tmp_path / "calls").exists()


async def test_the_same_search_gives_its_recorded_results_exactly(
    former: Former, text: str
) -> None:
    evaluated = await former.evaluate(text.replace("found = await", "found =  await"))
    assert facts(evaluated) == [("identical", "exact", [])]
    evaluated = await former.evaluate(text.replace(" by ", " of "))
    assert facts(evaluated) == [("changed", "exact", ["context support"])]


async def test_a_changed_search_is_named_and_gets_former_results(former: Former, text: str) -> None:
    evaluated = await former.evaluate(text.replace("top_k=3", "top_k=2"))
    assert facts(evaluated) == [("changed", "approximate", ["retriever articles"])]
    assert text_after(evaluated[0]).count("Article") == 2
    (reason,) = evaluated[0].context.reasons
    assert reason == (
        "index help: what embeds or ranks is not called; former results are used, or a search for "
        "words"
    )


async def test_a_new_search_is_for_words_alone(former: Former, text: str) -> None:
    evaluated = await former.evaluate(text.replace("articles(question)", 'articles("article two")'))
    assert facts(evaluated) == [("changed", "approximate", ["context support"])]
    assert text_after(evaluated[0]).startswith("Article two. by ann")


async def test_metadata_that_changed_since_are_not_exact(former: Former, text: str) -> None:
    await former.store.index("help", "two", "Article two.", {"by": "bob"})
    await former.store.drain()
    evaluated = await former.evaluate(text.replace("found = await", "found =  await"))
    assert evaluated[0].context.fidelity == "approximate"
