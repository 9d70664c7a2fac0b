"""Verification names tampering, signatures hold, and unrecorded contexts are reported."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headwater import FeatureStore
from headwater.contexts.recorder import Recorder
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    ConfigError,
    DamagedRecordError,
    HeadwaterError,
    ImmutableRecordError,
    InvalidInputError,
    RecordingError,
    SignatureError,
    SigningKeyError,
)
from headwater.records.sealing import open_core
from headwater.records.signing import statement_of
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop
from tests.engine.support import metric, records

SIGNED = {"signing_key": "k1:the first secret"}
PUBLIC = "ed25519-pub:e1:A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
DEEP = b"[" * 50_000 + b"]" * 50_000
ASKING: tuple[Callable[[FeatureStore, str], Awaitable[object]], ...] = (
    FeatureStore.get_context_at,
    lambda store, ref: store.records.explain(ref),
    FeatureStore.replay,
    lambda store, ref: store.records.diff(ref, ref),
    lambda store, ref: store.replay(ref, "live"),
)


async def broken(shop: Shop, ref: str) -> dict[str, str]:
    """Return the failed checks of a record, with their details."""
    report = await shop.store.records.verify(ref)
    assert report.ok == (not [check for check in report.checks if check.ok is False])
    return {check.check: check.detail for check in report.checks if check.ok is False}


async def alter(database: Database, column: str, ref: str, before: bytes, after: bytes) -> None:
    """Replaces some bytes of a column, as somebody does who has the database."""
    sql = f"SELECT {column} FROM {{records}} WHERE context_id = $1"
    ((stored,),) = await database.run(sql, ref)
    assert before in stored
    sql = f"UPDATE {{records}} SET {column} = $1 WHERE context_id = $2"
    await database.run(sql, stored.replace(before, after, 1), ref)


async def test_an_untouched_record_holds_in_every_check(opens: Opens) -> None:
    shop = opens(**SIGNED)
    await shop.spends("u1", 5)
    made = await shop.asks()
    report = await shop.store.records.verify(made.context_id)
    assert [(check.check, check.ok) for check in report.checks] == [
        ("hash", True),
        ("signature", True),
        ("disclosures", True),
        ("content", True),
        ("reassembly", True),
    ]


@pytest.mark.parametrize(
    ("column", "before", "after", "check", "named"),
    [
        ("core", b'"max_tokens":60', b'"max_tokens":61', "hash", "was altered"),
        ("core", b'"$sd":"', b'"$sd":"0', "hash", "was altered"),
        ("core", b'"spec":"CRS-001"', b'"spec":"CRS-002"', "hash", "CRS-002"),
        ("core", b"{", b"", "hash", "not readable"),
        ("core", b'"fresh":true', b'"fresh": true', "hash", "canonical"),
        ("disclosures", b"Spent so far: 5", b"Spent so far: 6", "disclosures", "/items/2/content"),
        ("disclosures", b'"value":5', b'"value":6', "disclosures", "/features/"),
        ("disclosures", b'"salt":"', b'"salt":"A', "disclosures", "its value or salt"),
        ("disclosures", b"/inputs/user_id", b"/inputs/nobody", "disclosures", "/inputs/nobody"),
        ("disclosures", b"[", b"", "disclosures", "the disclosures cannot be read"),
        ("redactions", b"[", b"", "disclosures", "the redactions cannot be read"),
        (
            "redactions",
            b"[]",
            b'[{"pointer":"/x","redacted_at":"","reason":""}]',
            "disclosures",
            "/x",
        ),
        ("signature", b"HMAC", b"HMAK", "signature", "HMAK"),
        ("signature", b'signed_at\\":\\"2', b'signed_at\\":\\"3', "signature", "was altered"),
        ("signature", b'"signature":"', b'"signature":"A', "signature", "did not sign"),
        ("signature", b"{", b"", "signature", "the signature cannot be read"),
    ],
)
async def test_tampering_with_the_database_is_named(
    opens: Opens,
    database: Database,
    column: str,
    before: bytes,
    after: bytes,
    check: str,
    named: str,
) -> None:
    shop = opens(**SIGNED)
    await shop.spends("u1", 5)
    made = await shop.asks()
    await alter(database, column, made.context_id, before, after)
    assert named in (await broken(shop, made.context_id))[check]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("record_hash", "sha256:" + "0" * 64),
        ("content_hash", "sha256:" + "0" * 64),
        ("name", "another"),
        ("freshness_status", "degraded"),
    ],
)
async def test_tampering_with_listed_columns_is_detected(
    shop: Shop, database: Database, column: str, value: str
) -> None:
    made = await shop.plain("a")
    sql = f"UPDATE {{records}} SET {column} = $1 WHERE context_id = $2"
    await database.run(sql, value, made.context_id)
    problem = (await broken(shop, made.context_id))["hash"]
    assert column in problem
    assert value in problem


async def test_a_record_under_the_id_of_another_is_named(shop: Shop, database: Database) -> None:
    one, two = await shop.plain("a"), await shop.plain("b")
    for column in ("core", "disclosures", "record_hash", "content_hash"):
        sql = f"SELECT {column} FROM {{records}} WHERE context_id = $1"
        ((theirs,),) = await database.run(sql, two.context_id)
        if column == "record_hash":
            continue
        sql = f"UPDATE {{records}} SET {column} = $1 WHERE context_id = $2"
        await database.run(sql, theirs, one.context_id)
    assert f"but the core says {two.context_id}" in (await broken(shop, one.context_id))["hash"]


async def test_a_removed_signature_fails_where_a_key_is_configured(
    opens: Opens, database: Database
) -> None:
    made = await opens(**SIGNED).plain("a")
    sql = "UPDATE {records} SET signature = NULL WHERE context_id = $1"
    await database.run(sql, made.context_id)
    said = "the record is not signed, although there are keys to check one"
    for shop in (opens(**SIGNED), opens(**SIGNED, signature_mode="required")):
        assert (await broken(shop, made.context_id))["signature"] == said
        accepted = await shop.store.records.verify(made.context_id, signed=False)
        assert (accepted.ok, accepted.signed) == (True, False)
        assert accepted.of("signature").detail == said
    without_keys = opens().store.records
    assert (await without_keys.verify(made.context_id)).ok
    assert not (await without_keys.verify(made.context_id, signed=True)).ok


async def test_a_record_is_held_against_the_hash_that_was_handed_out(shop: Shop) -> None:
    one, two = await shop.plain("a"), await shop.plain("b")
    verify = shop.store.records.verify
    for expect in (one.record_hash, str(one.record_hash)[7:].upper(), one.context_id):
        assert (await verify(one.context_id, expect=expect)).ok
    for expect in (two.record_hash, "sha256:00", ""):
        report = await verify(one.context_id, expect=expect)
        assert report.of("hash").ok is False
        assert f"another record than {expect}" in report.of("hash").detail


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("disclosures", b"[", b""),
        ("disclosures", b"[", b'[{"pointer":"/x","salt":"","value":' + DEEP + b"},"),
        ("disclosures", b'"value":"a"', b'"value":"b"'),
        ("disclosures", b'"value":"a"', b'"value":' + b"[" * 300 + b"]" * 300),
        ("redactions", b"[", b""),
        ("signature", b"{", b""),
        ("signature", b'"statement":"', b'"statement":"5'),
        ("core", b'"timing":', b'"timings":'),
        ("core", b'"development"', b'"\xff"'),
        ("core", b'"fresh', b'"deep":' + DEEP + b',"fresh'),
        ("core", b'"development"', b'"elsewhere"'),
    ],
)
async def test_every_read_of_a_damaged_record_reports_the_damage(
    opens: Opens, database: Database, column: str, before: bytes, after: bytes
) -> None:
    shop = opens(**SIGNED, env="development")
    made = await shop.plain("a")
    await alter(database, column, made.context_id, before, after)
    for verb in ASKING:
        with pytest.raises(DamagedRecordError, match="headwater context verify") as caught:
            await verb(shop.store, made.context_id)
        assert caught.value.part == column
    assert await broken(shop, made.context_id)


@pytest.mark.parametrize("settings", ["embedded"], indirect=True)
@pytest.mark.parametrize("column", ["core", "disclosures", "signature", "redactions"])
async def test_a_part_that_is_stored_as_a_text_says_so(
    opens: Opens, database: Database, column: str
) -> None:
    shop = opens(**SIGNED)
    made = await shop.plain("a")
    await database.run(f"UPDATE {{records}} SET {column} = CAST({column} AS TEXT)")
    with pytest.raises(DamagedRecordError, match="stored as str, not as bytes") as caught:
        await shop.store.get_record(made.context_id)
    assert caught.value.part == column
    assert "stored as str" in str(await broken(shop, made.context_id))


async def test_an_altered_value_is_named_and_not_shown(shop: Shop, database: Database) -> None:
    made = await shop.plain("a fine text")
    await alter(database, "disclosures", made.context_id, b"a fine text", b"a fake text")
    for verb in ASKING:
        with pytest.raises(DamagedRecordError, match="/inputs/text: it does not open") as caught:
            await verb(shop.store, made.context_id)
        assert "a fake text" not in str(caught.value)


async def test_a_record_in_the_place_of_another_is_not_shown(
    shop: Shop, database: Database
) -> None:
    one, two = await shop.plain("a"), await shop.plain("b")
    rename = "UPDATE {{records}} SET context_id = '{}' WHERE context_id = '{}'"
    await database.run(rename.format("x", one.context_id))
    await database.run(rename.format(one.context_id, two.context_id))
    for verb in ASKING:
        with pytest.raises(DamagedRecordError, match=f"is that of context {two.context_id}"):
            await verb(shop.store, one.context_id)


async def test_a_record_never_becomes_another_one(shop: Shop) -> None:
    made = await shop.plain("a")
    log = (await runtime_of(shop.store).open()).backends.records
    stored = await log.get(made.context_id)
    assert stored is not None
    other = msgspec.structs.replace(stored, record_hash="sha256:" + "0" * 64, core=b"{}")
    with pytest.raises(ImmutableRecordError, match="assemble again"):
        await log.append(other, [])
    await log.append(stored, [])
    assert await log.get(made.context_id) == stored


async def test_records_are_signed_when_there_is_a_key_and_not_when_that_is_off(
    opens: Opens,
) -> None:
    signed = await opens(**SIGNED).plain("a")
    unsigned = await opens().plain("b")
    off = await opens(**SIGNED, signature_mode="off").plain("c")
    shop = opens(**SIGNED)
    assert (await shop.store.get_context_at(signed.context_id)).signed_by == "k1"
    for made in (unsigned, off):
        assert (await shop.store.get_record(made.context_id)).signature is None
        report = await shop.store.records.verify(made.context_id, signed=False)
        assert report.of("signature").ok is None


async def test_old_records_hold_by_the_old_key_after_a_rotation(opens: Opens) -> None:
    old = await opens(signing_key="k1:the very first one").plain("a")
    shop = opens(signing_key="k2:the second secret,k1:the very first one")
    new = await shop.plain("b")
    keys = [(await shop.store.get_context_at(made.context_id)).signed_by for made in (old, new)]
    assert keys == ["k1", "k2"]
    assert await broken(shop, old.context_id) == await broken(shop, new.context_id) == {}
    later = opens(signing_key="k2:the second secret")
    assert await broken(later, new.context_id) == {}
    report = await later.store.records.verify(old.context_id, signed=False)
    assert (report.ok, report.of("signature").ok) == (True, None)
    assert report.verdict == "Nothing is broken, but its signature was not checked."
    asked = await later.store.records.verify(old.context_id)
    strict = opens(signing_key="k2:the second secret", signature_mode="required")
    for refused in (asked, await strict.store.records.verify(old.context_id)):
        assert refused.of("signature").fault == "unchecked"
        assert "'k1' is not in the keyring, which has 'k2'" in refused.of("signature").detail


async def test_contexts_are_found_after_a_rotation_of_the_signing_key(
    opens: Opens, clock: ManualClock
) -> None:
    before = opens(signing_key="k1:the very first one")
    await before.spends("u1", 5)
    old = await before.asks()
    clock.advance("1s")
    after = opens(signing_key="k2:the second secret,k1:the very first one")
    new = await after.asks()
    page = await after.store.records.find(feature="total", entity_id="u1")
    assert [each.context_id for each in page.contexts] == [new.context_id, old.context_id]


async def test_ed25519_signs_and_its_public_half_verifies(opens: Opens) -> None:
    from_seed = f"ed25519:e1:{b64encode(bytes(range(32))).decode()}"
    shop = opens(signing_key=from_seed, signature_mode="required")
    made = await shop.plain("a")
    signature = (await shop.store.get_record(made.context_id)).signature
    assert signature is not None
    assert statement_of(signature).algorithm == "Ed25519"
    assert await broken(shop, made.context_id) == {}


@pytest.mark.parametrize(
    ("key", "error", "problem"),
    [
        ("", ConfigError, "HEADWATER_SIGNING_KEY"),
        ("ed25519:e1:short", SigningKeyError, "32 byte"),
    ],
)
async def test_a_store_that_must_sign_does_not_open_without_a_key(
    opens: Opens, key: str, error: type[HeadwaterError], problem: str
) -> None:
    shop = opens(signing_key=key, signature_mode="required")
    with pytest.raises(error, match=problem):
        await shop.store.open()
    with pytest.raises(error, match=problem):
        await shop.plain("a")


async def test_public_keys_are_enough_to_read_and_to_verify_but_not_to_record(
    opens: Opens,
) -> None:
    seed = b64encode(bytes(range(32))).decode()
    made = await opens(signing_key=f"ed25519:e1:{seed}").plain("a")
    auditor = opens(signing_key=PUBLIC, signature_mode="required")
    assert (await auditor.store.get_context_at(made.context_id)).content == "a"
    assert await broken(auditor, made.context_id) == {}
    assert (await auditor.store.records.verify(made.context_id)).of("signature").ok is True
    assert (await auditor.store.replay(made.context_id, "live")).matches is True
    with pytest.raises(SignatureError, match="no key that signs is configured"):
        await auditor.plain("b")
    with pytest.raises(ConfigError, match="no key in HEADWATER_SIGNING_KEY can sign"):
        await (await runtime_of(auditor.store).open()).assembler.warm_up()
    assert len((await auditor.store.list_contexts()).contexts) == 1


async def test_a_record_that_must_be_signed_is_never_made_without_a_key(
    shop: Shop, settings: Settings
) -> None:
    made = await shop.plain("a")
    core = open_core(await shop.store.get_record(made.context_id))
    engine = await runtime_of(shop.store).open()
    required = msgspec.structs.replace(engine, settings=settings.replace(signature_mode="required"))
    with pytest.raises(SignatureError, match="HEADWATER_SIGNING_KEY"):
        Recorder(required).seal(core)


async def test_a_log_that_fails_does_not_fail_the_context(
    shop: Shop, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    await shop.plain("before")
    await database.run("ALTER TABLE {records} RENAME TO gone")
    unrecorded = metric("headwater_contexts_unrecorded_total")
    made = await shop.plain("a quibbledash")
    assert made.content == "a quibbledash"
    assert made.meta["recorded"] is False
    assert metric("headwater_contexts_unrecorded_total") == unrecorded + 1
    written = capfd.readouterr().err
    (line,) = records(written, "context not recorded")
    assert line["context_id"] == made.context_id
    assert line["level"] == "error"
    assert "quibbledash" not in written


async def test_a_log_that_fails_is_an_error_where_records_are_required(
    opens: Opens, database: Database
) -> None:
    shop = opens(record={"required": True})
    assert (await shop.plain("before")).meta["recorded"] is True
    await database.run("ALTER TABLE {records} RENAME TO gone")
    with pytest.raises(RecordingError, match="HEADWATER_RECORD_REQUIRED"):
        await shop.plain("a")


async def test_a_text_that_was_assembled_elsewhere_gets_the_same_record(
    shop: Shop, clock: ManualClock
) -> None:
    made = await shop.store.record_external(
        name="elsewhere",
        content="What the model saw.",
        inputs={"user_id": "u1", "top_k": 3, "when": clock.now(), "took": timedelta(seconds=2)},
        model="gpt-4o",
        version="7",
        interaction_ref={"call_id": "c1"},
    )
    past = await shop.store.get_context_at(str(made.record_hash))
    assert (past.content, past.name, past.version) == ("What the model saw.", "elsewhere", "7")
    assert past.inputs["top_k"] == 3
    assert past.inputs["when"] == clock.now()
    assert past.interaction_ref == made.interaction_ref == {"call_id": "c1"}
    assert past.tokens == made.tokens == 5
    assert past.cost_nano_usd is not None
    assert await broken(shop, made.context_id) == {}
    assert (await shop.store.replay(made.context_id, "reassemble")).matches is True
    page = await shop.store.list_contexts(name="elsewhere")
    assert [each.context_id for each in page.contexts] == [made.context_id]


async def test_an_external_context_with_an_inexact_value_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidInputError, match="/inputs/made"):
        await shop.store.record_external(name="elsewhere", content="a", inputs={"made": object()})
    for name in ("user-id", "", "class", "a b"):
        with pytest.raises(InvalidInputError, match="letters, digits and _"):
            await shop.store.record_external(name="elsewhere", content="a", inputs={name: "u1"})


async def test_the_interaction_of_an_external_context_may_be_among_its_inputs(shop: Shop) -> None:
    reference = {"call_id": "c1"}
    made = await shop.store.record_external(
        name="elsewhere", content="a", inputs={"interaction_ref": reference}
    )
    assert made.interaction_ref == reference
    assert (await shop.store.get_context_at(made.context_id)).interaction_ref == reference


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"content": b"a"}, "content must be text, not bytes"),
        ({"content": "half \ud800"}, "content must be text, not one with a lone surrogate"),
        ({"name": 5}, "name is 5; give printable text"),
        ({"name": ""}, "name is ''; give printable text"),
        ({"name": "a\0b"}, "give printable text"),
        ({"name": "\ud800"}, "give printable text"),
        ({"name": "n" * 257}, "1 to 256 characters"),
        ({"version": 5}, "version must be text or None, not int"),
        ({"model": 5}, "model must be text or None, not int"),
        ({"inputs": [1]}, "inputs must be a mapping .* not list"),
        ({"inputs": "a"}, "inputs must be a mapping .* not str"),
        ({"inputs": {1: 2}}, "not a valid name of an input"),
        ({"interaction_ref": [1]}, "interaction_ref is a mapping"),
    ],
)
async def test_an_external_context_with_a_wrong_argument_is_refused(
    shop: Shop, given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await shop.store.record_external(**{"name": "elsewhere", "content": "a"} | given)
    assert (await shop.store.list_contexts()).contexts == []
