"""Privacy and redaction: withheld values are stored nowhere, and records still verify."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater import Chunk, Context, ContextItem, context, retriever
from headwater.backends.connect import connect
from headwater.backends.redis.client import command
from headwater.core.clock import SystemClock
from headwater.declarations.contexts import RetrieverFunction
from headwater.errors import InvalidInputError, RedactionError
from headwater.records.document import export, load
from headwater.records.verify import verify_record
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop

SECRETS = (
    *("7731991", "Zerlina", "quibbledash", "u-marzipan", "Xylocarp", "d-kumquat", "c-flugel"),
    "k-wombat",
)


def files_with(secret: str, settings: Settings) -> list[str]:
    """The files of an embedded store in which something stands in clear."""
    files = [path for path in Path(settings.home).rglob("*") if path.is_file()]
    return [path.name for path in files if secret.encode() in path.read_bytes()]


async def ask_secretly(shop: Shop) -> Context:
    """A context in which every kind of value is a secret."""
    chunk = type(shop.documents[0])
    shop.documents = [chunk(text="About the Xylocarp.", id="d-kumquat", score=0.5)]
    await shop.spends("u-marzipan", 7731991, "Zerlina")
    asking = shop.support.options(interaction_ref={"k-wombat": "c-flugel"})
    made: Context = await asking("u-marzipan", "quibbledash?")
    # Missing, so that a violation has an entity id as well.
    await asking("u-marzipan-missing", "quibbledash?")
    return made


async def test_without_content_nothing_is_in_clear_in_the_records_and_the_log(
    opens: Opens, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    shop = opens(record={"include_content": False})
    made = await ask_secretly(shop)
    past = await shop.store.get_context_at(made.context_id)
    told = await shop.store.records.explain(made.context_id)
    await shop.store.records.verify(made.context_id)
    stored = await database.everything()
    assert made.context_id.encode() in stored
    written = capfd.readouterr()
    for secret in SECRETS:
        assert secret.encode() not in stored, secret
        assert secret not in written.err + written.out, secret
        assert secret not in repr(past), secret
        assert secret not in repr(told), secret


async def test_without_content_a_section_is_withheld_like_any_text(
    opens: Opens, database: Database
) -> None:
    shop = opens(record={"include_content": False})

    @context(shop.store)
    def letter() -> list[ContextItem]:
        return [ContextItem("Dear Ada", section="for Zerlina")]

    made = await letter()
    assert b"Zerlina" not in await database.everything()
    (item,) = (await shop.store.records.explain(made.context_id)).items
    assert item.section is None
    assert "/items/0/section" in (await shop.store.get_context_at(made.context_id)).withheld
    again = await letter()
    (compared,) = (await shop.store.records.diff(made.context_id, again.context_id)).items
    assert (compared.before is None, compared.after is None) == (False, False)


async def test_with_content_the_same_search_finds_the_secrets(
    shop: Shop, database: Database
) -> None:
    await ask_secretly(shop)
    stored = await database.everything()
    assert all(secret.encode() in stored for secret in SECRETS)


async def test_without_content_no_file_of_an_embedded_store_has_the_texts_of_a_context(
    opens: Opens, settings: Settings
) -> None:
    shop = opens(record={"include_content": False})
    await ask_secretly(shop)
    await shop.store.close()
    for secret in ("quibbledash", "Xylocarp", "d-kumquat", "c-flugel"):
        assert files_with(secret, settings) == []


def search_for_a_while(shop: Shop) -> tuple[RetrieverFunction[[str]], list[str]]:
    """A search with cached results, and its arguments."""
    made: list[str] = []

    @retriever(shop.store, cache_ttl="5m")
    async def look_up(question: str) -> list[Chunk]:
        made.append(question)
        spent = await shop.store.get_feature("total", "u-marzipan")
        return [Chunk(text=f"About the Xylocarp: {spent}", id="d-kumquat")]

    return look_up, made


async def kept_elsewhere(settings: Settings) -> bytes:
    """Everything in the cache that processes share: keys and values."""
    backends = await connect(settings, SystemClock())
    try:
        if not settings.redis.url:
            with closing(sqlite3.connect(Path(settings.home) / "headwater.db")) as db:
                rows = db.execute("SELECT key, value FROM cache").fetchall()
        else:
            redis = backends.cache._redis  # type: ignore[attr-defined] # noqa: SLF001
            pattern = f"{settings.redis.prefix}:cache:*"
            names = await redis.call(command(pattern, "KEYS", pattern))
            rows = [(name, await redis.call(command(name, "GET", name))) for name in names]
    finally:
        await backends.lifecycle.close()
    return b"\n".join(v if isinstance(v, bytes) else v.encode() for row in rows for v in row)


async def test_without_content_search_results_are_cached_only_in_the_process(
    opens: Opens, settings: Settings, clock: ManualClock
) -> None:
    shop = opens(record={"include_content": False})
    look_up, made = search_for_a_while(shop)
    assert await look_up("quibbledash?") == await look_up("quibbledash?")
    assert made == ["quibbledash?"]
    assert await kept_elsewhere(settings) == b""
    another, made_there = search_for_a_while(opens(record={"include_content": False}))
    await another("quibbledash?")
    assert made_there == ["quibbledash?"]
    clock.advance("6m")
    await look_up("quibbledash?")
    assert len(made) == 2


async def test_without_content_reads_of_a_cached_search_are_found(opens: Opens) -> None:
    shop = opens(record={"include_content": False})
    look_up, _ = search_for_a_while(shop)

    @context(shop.store)
    async def asks() -> str:
        return (await look_up("quibbledash?"))[0].text

    made = [(await asks()).context_id for _ in range(2)]
    page = await shop.store.records.find(feature="total", entity_id="u-marzipan")
    assert [summary.context_id for summary in page.contexts] == made[::-1]


async def test_with_content_processes_share_results_under_opaque_keys(
    opens: Opens, settings: Settings
) -> None:
    look_up, _ = search_for_a_while(opens())
    await look_up("quibbledash?")
    kept = await kept_elsewhere(settings)
    assert b"Xylocarp" in kept
    assert b"quibbledash" not in kept


async def test_withheld_values_are_named_and_all_others_are_present(opens: Opens) -> None:
    shop = opens(record={"include_content": False})
    made = await ask_secretly(shop)
    past = await shop.store.get_context_at(made.context_id)
    assert past.content is None
    assert past.inputs == {"user_id": None, "question": None}
    assert past.interaction_ref is None
    assert "/interaction_ref" in past.withheld
    assert str(past) == f"(withheld: {made.content_hash})"
    assert {"/output/content", "/inputs/question", "/features/0/value"} <= set(past.withheld)
    assert (past.tokens, past.content_hash) == (made.tokens, made.content_hash)
    assert [(f.feature, f.age_ms, f.fresh) for f in past.lineage.features] == [
        (f.feature, f.age_ms, f.fresh) for f in made.lineage.features
    ]


@pytest.mark.parametrize(
    "changes", [{}, {"signing_key": "k:correct horse battery"}, {"record": {"index_key": "i"}}]
)
async def test_without_content_contexts_are_found(opens: Opens, changes: dict[str, object]) -> None:
    own = {"include_content": False} | dict(changes.get("record", {}))  # type: ignore[call-overload]
    shop = opens(**{**changes, "record": own})
    made = await ask_secretly(shop)
    for asked in (
        {"feature": "total", "entity_id": "u-marzipan"},
        {"entity_id": "u-marzipan"},
        {"chunk": "d-kumquat", "entity_id": "u-marzipan"},
    ):
        page = await shop.store.records.find(**asked)  # type: ignore[arg-type]
        assert [summary.context_id for summary in page.contexts] == [made.context_id]


async def test_full_private_and_redacted_copies_hold_under_one_hash(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    full = await shop.store.get_record(made.context_id)
    redacted = await shop.store.records.redact(
        made.context_id, "/features/0/value", reason="erasure request 17", by="Kim"
    )
    for copy in (full, full.private(), redacted, load(export(redacted))):
        assert copy.record_hash == made.record_hash
        assert verify_record(copy, expect=made.record_hash).ok
    assert await shop.store.get_record(made.context_id) == redacted
    report = await shop.store.records.verify(made.context_id)
    assert report.ok
    assert "/features/0/value" in report.of("disclosures").detail


async def test_a_redacted_value_is_gone_and_a_note_says_why(
    opens: Opens, database: Database, settings: Settings
) -> None:
    shop = opens()

    @context(shop.store)
    async def letter(text: str) -> ContextItem:
        return ContextItem("Dear customer")

    made = await letter("a quibbledash")
    await shop.store.records.redact(made.context_id, "/inputs/text", reason="asked to", by="Kim")
    assert b"quibbledash" not in await database.everything()
    past = await shop.store.get_context_at(made.context_id)
    assert (past.inputs, past.redacted, past.withheld) == (
        {"text": None},
        ["/inputs/text"],
        ["/inputs/text"],
    )
    (note,) = (await shop.store.get_record(made.context_id)).redactions
    assert (note.pointer, note.reason, note.by) == ("/inputs/text", "asked to", "Kim")
    await shop.store.close()
    assert files_with("quibbledash", settings) == []


async def test_a_text_is_erased_from_the_output_and_from_its_item(shop: Shop) -> None:
    made = await shop.plain("a quibbledash")
    for pointer in ("/output/content", "/items/0/content", "/inputs/text"):
        await shop.store.records.redact(made.context_id, pointer, reason="asked to")
    assert "quibbledash" not in repr(await shop.store.records.explain(made.context_id))
    report = await shop.store.records.verify(made.context_id)
    assert report.ok
    assert (report.of("content").ok, report.of("reassembly").ok) == (None, None)


async def test_a_text_is_erased_everywhere_in_one_step(shop: Shop) -> None:
    made = await shop.plain("a quibbledash")
    pointers = ["/inputs/text", "/items/0/content", "/output/content"]
    with pytest.raises(RedactionError):
        await shop.store.records.redact(made.context_id, *pointers, "/nowhere", reason="asked to")
    with pytest.raises(InvalidInputError, match="which value"):
        await shop.store.records.redact(made.context_id, reason="asked to")
    assert (await shop.store.get_record(made.context_id)).redactions == ()
    redacted = await shop.store.records.redact(
        made.context_id, "/inputs/text", reason="asked to", everywhere=True
    )
    assert sorted(note.pointer for note in redacted.redactions) == pointers
    assert await shop.store.get_record(made.context_id) == redacted
    assert b"quibbledash" not in export(redacted)
    assert (await shop.store.records.verify(made.context_id)).ok


async def test_two_concurrent_redactions_succeed(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    pointers = [f"/items/{place}/content" for place in range(4)]
    await asyncio.gather(
        *(
            shop.store.records.redact(made.context_id, pointer, reason="asked to")
            for pointer in pointers
        )
    )
    record = await shop.store.get_record(made.context_id)
    assert sorted(note.pointer for note in record.redactions) == pointers
    assert (await shop.store.records.verify(made.context_id)).ok


async def test_a_missing_value_cannot_be_redacted(shop: Shop) -> None:
    made = await shop.plain("a")
    with pytest.raises(RedactionError, match="did you mean '/inputs/text'"):
        await shop.store.records.redact(made.context_id, "/input/text", reason="asked to")
    with pytest.raises(InvalidInputError, match="reason"):
        await shop.store.records.redact(made.context_id, "/inputs/text", reason=" ")
    await shop.store.records.redact(made.context_id, "/inputs/text", reason="asked to")
    with pytest.raises(RedactionError):
        await shop.store.records.redact(made.context_id, "/inputs/text", reason="again")
