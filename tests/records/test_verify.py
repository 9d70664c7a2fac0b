"""Verification finds every change, of one byte or one value, and names it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.canonical_json import canonical, parse
from headwater.records.document import export, load
from headwater.records.record import Disclosure, Record
from headwater.records.redaction import redact
from headwater.records.sealing import digest, seal
from headwater.records.signing import parse_keyring, sign
from headwater.records.verify import verify_record
from tests.records.strategies import VALUES
from verifier.generator.samples import HMAC, NOON, salts, sample

RECORD = sign(seal(sample(), salts()), parse_keyring(HMAC), NOON)
DISCLOSED = {each.pointer for each in RECORD.disclosures}


@given(st.integers(0, len(RECORD.core) - 1), st.integers(1, 255))
def test_any_changed_byte_of_the_core_is_found(at: int, flip: int) -> None:
    core = bytearray(RECORD.core)
    core[at] ^= flip
    report = verify_record(msgspec.structs.replace(RECORD, core=bytes(core)), HMAC)
    assert report.of("hash").ok is False
    assert RECORD.record_hash in report.of("hash").detail
    assert report.of("signature").ok is False


@given(st.integers(0, len(RECORD.core)), st.binary(min_size=1, max_size=3))
def test_any_inserted_byte_of_the_core_is_found(at: int, added: bytes) -> None:
    core = RECORD.core[:at] + added + RECORD.core[at:]
    report = verify_record(msgspec.structs.replace(RECORD, core=core), HMAC)
    assert (report.of("hash").ok, report.of("signature").ok) == (False, False)


@given(st.integers(0, len(RECORD.disclosures) - 1), VALUES)
def test_any_changed_value_is_found_and_named(at: int, value: object) -> None:
    disclosure = RECORD.disclosures[at]
    changed = msgspec.structs.replace(disclosure, value=["changed", repr(value)])
    report = verify_record(_with(*RECORD.disclosures[:at], changed, *RECORD.disclosures[at + 1 :]))
    assert report.of("hash").ok is True
    assert report.of("disclosures").ok is False
    assert report.of("disclosures").detail.startswith(f"{disclosure.pointer} does not open")


@given(st.integers(0, 63), st.integers(1, 255))
def test_any_changed_byte_of_a_signature_is_found(at: int, flip: int) -> None:
    signature = RECORD.signature
    assert signature is not None
    for text in (signature.signature, signature.statement):
        raw = bytearray(text.encode())
        raw[at % len(raw)] ^= flip & 0x7F or 1
        changed = raw.decode("latin-1")
        broken = (
            msgspec.structs.replace(signature, signature=changed)
            if text is signature.signature
            else msgspec.structs.replace(signature, statement=changed)
        )
        report = verify_record(msgspec.structs.replace(RECORD, signature=broken), HMAC)
        assert [check.ok for check in report.checks] == [True, False, True, True, True]


@given(st.permutations(RECORD.disclosures))
def test_the_order_of_disclosures_means_nothing(disclosures: list[Disclosure]) -> None:
    assert verify_record(_with(*disclosures)).ok


@pytest.mark.parametrize("pointer", [each.pointer for each in RECORD.disclosures])
def test_each_value_can_be_redacted_and_none_can_go_missing(pointer: str) -> None:
    left = [each for each in RECORD.disclosures if each.pointer != pointer]
    missing = verify_record(_with(*left))
    assert not missing.ok
    assert f"{pointer} is missing" in missing.of("disclosures").detail
    redacted = redact(RECORD, pointer, at=NOON, reason="asked for")
    report = verify_record(redacted, HMAC)
    assert report.ok
    assert (report.of("hash").ok, report.of("signature").ok) == (True, True)
    assert pointer in report.of("disclosures").detail


def test_full_private_and_redacted_copies_verify_under_one_hash() -> None:
    redacted = redact(RECORD, "/inputs/question", at=NOON, reason="asked for")
    for copy in (RECORD, RECORD.private(), redacted, redacted.private()):
        report = verify_record(load(export(copy)), HMAC, expect=RECORD.record_hash, signed=True)
        assert report.ok
        assert report.of("hash").ok is True
        assert report.of("signature").ok is True


def test_a_stripped_signature_or_an_unknown_key_fails_unless_unsigned_is_accepted() -> None:
    stripped = msgspec.structs.replace(RECORD, signature=None)
    assert (verify_record(RECORD).signed, verify_record(stripped).signed) == (True, False)
    for record, keys, fault in (
        (stripped, HMAC, "unsigned"),
        (RECORD, "2027-01:the secret of next year", "unchecked"),
    ):
        refused = verify_record(record, keys)
        assert (refused.ok, refused.of("signature").fault) == (False, fault)
        accepted = verify_record(record, keys, signed=False)
        assert (accepted.ok, accepted.of("signature").ok) == (True, None)
        without_keys = verify_record(record)
        assert (without_keys.ok, without_keys.of("signature").ok) == (True, None)
        assert verify_record(record, signed=True).of("signature").fault == fault


@pytest.mark.parametrize("depth", [300, 900, 50_000])
def test_a_core_that_is_nested_too_deeply_is_broken_and_no_error(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    core = RECORD.core.replace(b'"spec":', b'"deep":' + nested + b',"spec":')
    assert verify_record(msgspec.structs.replace(RECORD, core=core)).of("hash").ok is False


def test_a_value_with_a_lone_surrogate_or_a_float_does_not_open_anything() -> None:
    for value in ("\ud800", 1.5, 2**70):
        first = msgspec.structs.replace(RECORD.disclosures[0], value=value)
        report = verify_record(_with(first, *RECORD.disclosures[1:]))
        assert report.of("disclosures").ok is False


def test_a_text_that_is_disclosed_as_something_else_is_not_compared() -> None:
    core = sample(items=())
    record = seal(core)
    at = next(i for i, each in enumerate(record.disclosures) if each.pointer == "/output/content")
    changed = msgspec.structs.replace(record.disclosures[at], value=5)
    disclosures = (*record.disclosures[:at], changed, *record.disclosures[at + 1 :])
    report = verify_record(msgspec.structs.replace(record, disclosures=disclosures))
    assert report.of("content").ok is None


@pytest.mark.parametrize("given", [DISCLOSED, DISCLOSED - {"/output/content", "/items/0/content"}])
def test_an_altered_text_is_not_reported_as_undisclosed(given: set[str]) -> None:
    texts = ("/output/content", "/items/1/content")
    disclosures = [
        msgspec.structs.replace(each, value="altered") if each.pointer in texts else each
        for each in RECORD.disclosures
        if each.pointer in given
    ]
    report = verify_record(_with(*disclosures))
    unopened = "the disclosed value does not open its commitment"
    whole = given == DISCLOSED
    assert report.of("content").detail == (
        f"{unopened if whole else 'not disclosed'}: /output/content"
    )
    assert report.of("reassembly").detail == (
        f"{'' if whole else 'not disclosed: /items/0/content; '}{unopened}: /items/1/content"
    )


def test_a_value_that_was_never_a_text_is_not_compared() -> None:
    core = parse(RECORD.core)
    salt = RECORD.disclosures[0].salt
    core["output"]["content"]["$sd"] = digest(salt, "/output/content", 5)
    sealed = msgspec.structs.replace(
        RECORD, core=canonical(core), disclosures=(Disclosure("/output/content", salt, 5),)
    )
    assert verify_record(sealed).of("content").detail == "not a text: /output/content"


def _with(*disclosures: Disclosure) -> Record:
    return msgspec.structs.replace(RECORD, disclosures=disclosures)
