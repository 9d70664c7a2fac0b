"""Items of one group are kept or dropped together, in texts as in messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from headwater import Context, ContextItem, FeatureStore, context
from headwater.core.tokens import tokenizer_for
from headwater.messages.parts import Role
from headwater.model.contexts import Mode
from headwater.records.document import export
from tests.contexts.support import recorded
from tests.records.node import VERIFIER, run

QUESTION, ANSWER = "Question: where is it?", "Answer: " + "far away " * 40
GPT = tokenizer_for("gpt-4o")
AGAIN: tuple[Mode, ...] = ("reassemble", "as_of", "live")


def items(role: Role | None = None, **options: Any) -> list[ContextItem]:
    return [
        ContextItem(QUESTION, group="qa", priority=5, role=role, **options),
        ContextItem("Be brief.", priority=3, role=role),
        ContextItem("", group="qa", role=role),
        ContextItem(ANSWER, group="qa", priority=4, role=role, **options),
        ContextItem("Be kind.", priority=9, required=True, role=role),
    ]


async def assembled(
    store: FeatureStore, offered: list[ContextItem], max_tokens: int | None, **options: Any
) -> Context:
    @context(store, **{"name": "desk"} | options, model="gpt-4o", max_tokens=max_tokens)
    async def desk() -> list[ContextItem]:
        return offered

    return await desk()


def decisions(made: Context) -> list[str]:
    return [item.decision for item in made.lineage.items]


@pytest.mark.parametrize("options", [{}, {"truncate": True}, {"required": True}])
@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("max_tokens", [30, 1000, None])
async def test_a_text_keeps_the_items_that_messages_keep(
    store: FeatureStore, options: dict[str, Any], *, backfill: bool, max_tokens: int | None
) -> None:
    ruled = {"backfill": backfill, "on_overflow": "flag"}
    text = await assembled(store, items(**options), max_tokens, name="text", **ruled)
    messages = await assembled(store, items("user", **options), max_tokens, name="said", **ruled)
    assert decisions(text) == decisions(messages)
    assert text.tokens == GPT.count(text.content)
    assert text.meta["overflow"] == messages.meta["overflow"]


@pytest.mark.both_environments
@pytest.mark.parametrize(
    ("max_tokens", "backfill", "kept"),
    [(30, False, "Be kind."), (30, True, "Be brief.\n\nBe kind."), (93, False, None)],
)
async def test_the_record_of_a_group_verifies_and_is_replayed(
    store: FeatureStore, tmp_path: Path, max_tokens: int, *, backfill: bool, kept: str | None
) -> None:
    made = await assembled(store, items(truncate=True), max_tokens, backfill=backfill)
    assert made.content == (kept or f"{QUESTION}\n\n{ANSWER}\n\nBe kind.")
    assert made.tokens == GPT.count(made.content)
    assert [item.group for item in (await recorded(store, made)).items] == [0, UNSET, 0, 0, UNSET]
    for mode in AGAIN:
        again = await store.replay(made.context_id, mode)
        assert (again.content, again.matches) == (made.content, True)
    assert (await store.records.verify(made.context_id)).of("reassembly").ok is True
    document = tmp_path / "record.json"
    document.write_bytes(export(await store.get_record(made.context_id)))
    elsewhere = run(VERIFIER / "cli.mjs", document)
    assert elsewhere.returncode == 0, elsewhere.stdout
    assert "kept items make up the text" in elsewhere.stdout


@pytest.mark.parametrize("role", [None, "user"])
async def test_a_group_that_empties_a_context_is_named_as_a_whole(
    store: FeatureStore, role: Role | None
) -> None:
    made = await assembled(store, items(role), 30)
    (warning,) = made.meta["warnings"]
    tokens = GPT.count(QUESTION) + GPT.count(ANSWER)
    assert f"item 0 did not fit with the {tokens} tokens of its group, so 1 of lower" in warning
    assert "truncate=True" not in warning
    first = (await store.records.explain(made.context_id)).items[0]
    assert first.why.startswith("dropped, because all items of its group did not fit; ")


async def test_a_group_of_one_item_may_be_shortened(store: FeatureStore) -> None:
    made = await assembled(store, [ContextItem(ANSWER, group="a", truncate=True)], 30)
    assert decisions(made) == ["truncated"]
    assert (await store.replay(made.context_id, "reassemble")).matches


async def test_a_record_without_groups_does_not_mention_them(store: FeatureStore) -> None:
    made = await assembled(store, [ContextItem("one"), ContextItem("two")], None)
    assert b'"group"' not in (await store.get_record(made.context_id)).core
