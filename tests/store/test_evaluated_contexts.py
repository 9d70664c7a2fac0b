"""What other code would have made of recorded contexts, and which declaration is the cause."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from headwater import Settings
from headwater.contexts.evaluation.evaluator import Evaluated
from headwater.testing import ManualClock
from tests.store.evaluating import FEATURES, Former

ASKED = {"customer_id": "c1", "question": "Where is it?"}


@pytest.fixture
async def former(tmp_path: Path, settings: Settings, clock: ManualClock) -> AsyncIterator[Former]:
    """Two contexts between purchases, and one of a customer without any."""
    former = Former(tmp_path, settings, clock)
    async with await former.open():
        await former.buy("c1", 30.0, 40.0)
        await former.assemble("support", **ASKED)
        await former.buy("c1", 50.0)
        await former.assemble("support", **ASKED)
        await former.assemble("support", **{**ASKED, "customer_id": "c2"})
        await former.buy("c1", 1000.0)
        yield former


def facts(evaluated: Sequence[Evaluated]) -> list[tuple[str, str, list[str]]]:
    """Return the status, the fidelity and the causes of each context."""
    contexts = [one.context for one in evaluated]
    return [
        (one.status, one.fidelity, [f"{cause.kind} {cause.name}" for cause in one.causes])
        for one in contexts
    ]


def text_after(evaluated: Evaluated) -> str:
    """Return the text that the present code gives."""
    assert evaluated.changed is not None
    disclosures = evaluated.changed.after["disclosures"]
    return str(next(one["value"] for one in disclosures if one["pointer"] == "/output/content"))


async def test_the_same_code_changes_nothing(former: Former) -> None:
    evaluated = await former.evaluate(FEATURES.replace("    return", "    # why\n    return"))
    assert facts(evaluated) == [("identical", "exact", [])] * 3


async def test_a_changed_handler_is_replayed_up_to_the_moment_of_each_context(
    former: Former,
) -> None:
    new = FEATURES.replace('+ event.payload["amount"]', '+ 2 * event.payload["amount"]')
    evaluated = await former.evaluate(new)
    changed = ("changed", "exact", ["feature total"])
    assert facts(evaluated) == [changed, changed, ("identical", "exact", [])]
    assert [text_after(one).splitlines()[2:7:2] for one in evaluated[:2]] == [
        ["A gold customer.", "Spent 140.00 EUR", "Average 70.0."],
        ["A gold customer.", "Spent 240.00 EUR", "Average 80.0."],
    ]


async def test_only_the_change_that_matters_is_blamed(former: Former) -> None:
    new = FEATURES.replace("+ 1\n", "+ 0 + 1\n").replace("Average {average:.1f}", "Mean {average}")
    evaluated = await former.evaluate(new)
    assert facts(evaluated) == [("changed", "exact", ["context support"])] * 3


async def test_a_changed_function_blames_what_calls_it(former: Former) -> None:
    evaluated = await former.evaluate(FEATURES.replace("EUR", "euros"))
    assert facts(evaluated) == [("changed", "exact", ["context support"])] * 3


async def test_a_context_inside_of_another_is_blamed(former: Former) -> None:
    evaluated = await former.evaluate(FEATURES.replace("A {tier} customer", "Tier: {tier}"))
    assert facts(evaluated) == [("changed", "exact", ["context greeting"])] * 3


async def test_changes_that_hide_each_other_are_both_causes(former: Former) -> None:
    new = FEATURES.replace("Average {average:.1f}.", "No average.").replace(
        "/ max(await orders", "/ 2 / max(await orders"
    )
    new = new.replace('default="new"', 'default="fresh"')
    evaluated = await former.evaluate(new)
    assert facts(evaluated)[0] == ("changed", "exact", ["context support"])
    assert facts(evaluated)[2] == ("changed", "exact", ["context support", "feature tier"])


async def test_a_new_feature_is_computed_from_the_events_of_its_time(former: Former) -> None:
    new = FEATURES.replace(
        "@feature(entity=Customer)\n",
        '@feature(entity=Customer, trigger="purchase", default=0.0)\n'
        "async def largest(customer_id: str, event: ServiceEvent) -> float:\n"
        '    return max(await largest.get(customer_id), event.payload["amount"])\n\n\n'
        "@feature(entity=Customer)\n",
    ).replace("Average {average:.1f}.", "Largest {largest:.0f}.")
    evaluated = await former.evaluate(new)
    assert [text_after(one).splitlines()[6] for one in evaluated] == [
        "Largest 40.",
        "Largest 50.",
        "Largest 0.",
    ]
    assert facts(evaluated) == [("changed", "exact", ["context support"])] * 3


async def test_a_context_that_fails_names_the_error_and_the_cause(former: Former) -> None:
    evaluated = await former.evaluate(FEATURES.replace(", 1)\n", ", 0)\n"))
    assert facts(evaluated)[2] == ("failed", "exact", ["feature average"])
    assert "ZeroDivisionError" in evaluated[2].context.error
    gone = await former.evaluate(FEATURES.replace("async def support", "async def helping"))
    assert "'support' is not declared any more" in gone[0].context.error


async def test_options_of_the_run_are_causes_too(former: Former) -> None:
    evaluated = await former.evaluate(FEATURES, {"max_tokens": 30})
    assert facts(evaluated) == [("changed", "exact", ["option max_tokens"])] * 3
    assert {one.context.kinds for one in evaluated} == {("lost", "tokens")}


async def test_nothing_is_written(former: Former) -> None:
    store, listed = former.store, await former.store.list_contexts()
    before = await store.get_feature_values(["total", "tier"], ["c1"])
    await former.evaluate(FEATURES.replace('default="new"', 'default="none"'))
    assert await store.list_contexts() == listed
    assert await store.get_feature_values(["total", "tier"], ["c1"]) == before
    assert await store.get_feature("tier", "c3") == "new"


async def test_what_a_record_withholds_is_skipped_or_kept_out(
    tmp_path: Path, settings: Settings, clock: ManualClock
) -> None:
    private = settings.replace(record={"include_content": False})
    former = Former(tmp_path, private, clock)
    async with await former.open():
        await former.buy("c1", 30.0)
        await former.assemble("support", **ASKED)
        evaluated = await former.evaluate(FEATURES.replace("EUR", "euros"))
    (context,) = [one.context for one in evaluated]
    assert (context.status, context.error) == ("skipped", "its record withholds the inputs")
    assert "euros" not in msgspec.json.encode(evaluated[0].changed).decode()


RICH = """
from headwater import Chunk, ContextItem, FeatureStore, ServiceEvent
from headwater import context, entity, feature, retriever

store = FeatureStore()


@entity(store)
class Customer:
    customer_id: str


@feature(entity=Customer, trigger="purchase", window="1h", aggregate=["sum", "count"])
def spend(customer_id: str, event: ServiceEvent) -> float | None:
    return event.payload["amount"]


@feature(entity=Customer, trigger="purchase", default=0.0, freshness="caught_up")
def rate(customer_id: str, event: ServiceEvent) -> float:
    before = store.sync.get_feature("rate", customer_id) or 0.0
    return before + 100 / event.payload["amount"]


@feature(entity=Customer, refresh="1h", materialize=True, default=1.0)
async def score(customer_id: str) -> float:
    return 2.0


@retriever(store, index="docs", top_k=1)
def search(question: str) -> list[Chunk]: ...


@context(store, freshness_sla="1m")
def answer(customer_id: str, question: str) -> list[ContextItem]:
    return [
        ContextItem("Rate " + str(store.sync.get_feature("rate", customer_id))),
        ContextItem.template("Spent {spend_sum_1h}, {spend_count_1h} times; score {score}."),
    ]


@context(store)
async def searched(question: str) -> list[ContextItem]:
    return [ContextItem(chunk.text, source=chunk) for chunk in await search(question)]
"""


@pytest.fixture
async def rich(tmp_path: Path, settings: Settings, clock: ManualClock) -> AsyncIterator[Former]:
    """Contexts of windows, sync functions, a schedule and an index that changes afterwards."""
    former = Former(tmp_path, settings, clock)
    async with await former.open(RICH) as store:
        await store.index("docs", "a", "Parcels arrive in two days.")
        await store.index("docs", "b", "Returns of parcels are free.")
        await former.buy("c1", 30.0, 20.0)
        await former.assemble("answer", customer_id="c1", question="?")
        await former.assemble("searched", question="When do parcels arrive?")
        await store.index("docs", "a", "Nothing about it.")
        await former.buy("c1", 10.0)
        yield former


async def test_windows_sync_functions_and_searches_are_those_of_their_moment(rich: Former) -> None:
    assert facts(await rich.evaluate(RICH)) == [("identical", "exact", [])] * 2


async def test_a_changed_window_is_made_of_the_contributions_of_its_time(rich: Former) -> None:
    new = RICH.replace('return event.payload["amount"]', 'return 2 * event.payload["amount"]')
    answer, searched = await rich.evaluate(new)
    assert facts([answer]) == [("changed", "exact", ["feature spend"])]
    assert "Spent 100.0, 2 times" in text_after(answer)
    assert searched.context.status == "identical"


async def test_a_changed_retriever_searches_the_recorded_version(rich: Former) -> None:
    answer, searched = await rich.evaluate(RICH.replace("top_k=1", "top_k=2"))
    assert facts([answer, searched]) == [
        ("identical", "exact", []),
        ("changed", "exact", ["retriever search"]),
    ]
    assert text_after(searched).split("\n\n") == [
        "Parcels arrive in two days.",
        "Returns of parcels are free.",
    ]


async def test_a_scheduled_feature_is_named_as_not_reproducible(rich: Former) -> None:
    answer, _ = await rich.evaluate(RICH.replace("return 2.0", "return 3.0"))
    assert (answer.context.status, answer.context.fidelity) == ("identical", "approximate")
    assert "score" in answer.context.reasons[0]


async def test_another_default_of_a_scheduled_feature_is_exact(rich: Former) -> None:
    answer, _ = await rich.evaluate(RICH.replace("default=1.0", "default=5.0"))
    assert facts([answer]) == [("changed", "exact", ["feature score"])]
    assert "score 5.0" in text_after(answer)


async def test_documents_that_a_changed_handler_writes_are_named(rich: Former) -> None:
    new = (
        RICH
        + """

@feature(entity=Customer, trigger="letter")
async def keep_letter(customer_id: str, event: ServiceEvent) -> None:
    await store.index("docs", event.event_id, event.payload["text"])
"""
    )
    answer, searched = await rich.evaluate(new)
    assert facts([answer]) == [("identical", "exact", [])]
    assert searched.context.reasons == (
        "feature keep_letter: what it writes to index docs is not replayed",
    )


async def test_a_handler_that_fails_now_makes_its_value_stale(rich: Former) -> None:
    new = RICH.replace("100 / event", "100 / (20 - event.payload['amount']) + 0 * event")
    answer, _ = await rich.evaluate(new)
    assert facts([answer]) == [("changed", "exact", ["feature rate"])]
    assert answer.changed is not None
    assert "dead_letter" in answer.changed.after["core"]
    assert "dead_letter" not in answer.changed.before["core"]
    (problem,) = answer.context.dead_letters
    assert problem.startswith("feature rate: ")
    assert "division by zero" in problem
    assert "Rate -10.0" in text_after(answer)


async def test_a_context_of_time_or_chance_is_blamed_on_no_declaration(
    tmp_path: Path, settings: Settings, clock: ManualClock
) -> None:
    former = Former(tmp_path, settings, clock)
    text = "from random import random\n" + FEATURES.replace('"You are a', 'f"You are {random()}, a')
    async with await former.open(text):
        await former.assemble("support", **ASKED)
        (unchanged,) = await former.evaluate(text.replace("    return", "    # why\n    return"))
        (other,) = await former.evaluate(text.replace("+ 1\n", "+ 0 + 1\n"))
    assert facts([unchanged]) == [("identical", "approximate", [])]
    assert facts([other]) == [("changed", "approximate", [])]
    for evaluated in (unchanged, other):
        assert "another text at each call" in evaluated.context.reasons[0]


async def test_a_prompt_in_a_file_is_a_change_of_the_contexts_that_show_it(
    tmp_path: Path, settings: Settings, clock: ManualClock
) -> None:
    former = Former(tmp_path, settings, clock)
    text = FEATURES.replace('"You are a support agent."', "PROMPT").replace(
        "store = FeatureStore()",
        'from pathlib import Path\nPROMPT = Path(__file__).with_name("prompt.txt").read_text()\n'
        "store = FeatureStore()",
    )
    (tmp_path / "new").mkdir()
    for file in (tmp_path / "prompt.txt", tmp_path / "new" / "prompt.txt"):
        file.write_text("You are calm.")
    async with await former.open(text):
        await former.assemble("support", **ASKED)
        assert facts(await former.evaluate(text)) == [("identical", "exact", [])]
        (tmp_path / "new" / "prompt.txt").write_text("You are loud.")
        evaluated = await former.evaluate(text)
    assert facts(evaluated) == [("changed", "exact", ["context support"])]
