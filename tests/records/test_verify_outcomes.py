"""Verification of outcomes finds every change, and an outcome that belongs to another record."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.records.outcomes import OutcomeRecord
from headwater.records.record import Disclosure, Signature
from headwater.records.redaction import redact
from headwater.records.sealing import seal
from headwater.records.signing import parse_keyring, sign
from headwater.records.verify import verify_outcome, verify_record
from tests.records.strategies import VALUES
from tests.records.test_outcomes import RESPONSE, SCORE, sealed
from verifier.generator.samples import HMAC, NOON, salts, sample

KEYS = parse_keyring(HMAC)
RECORD = sign(seal(sample(), salts()), KEYS, NOON)
OUTCOME = sign(sealed(RESPONSE), KEYS, NOON)
OTHER = sign(seal(sample(context_id="019b7e9c-4c1b-7abc-8def-0123456789ab"), salts()), KEYS, NOON)


def results(outcome: OutcomeRecord) -> list[bool | None]:
    return [check.ok for check in verify_outcome(outcome, HMAC, of=RECORD).checks]


def replaced(**changes: object) -> OutcomeRecord:
    return msgspec.structs.replace(OUTCOME, **changes)


def test_an_outcome_verifies_alone_and_with_its_record() -> None:
    assert results(OUTCOME) == [True] * 4
    alone = verify_outcome(OUTCOME, HMAC, expect=OUTCOME.outcome_hash, signed=True)
    assert (alone.ok, alone.of("link").ok, alone.verdict) == (True, None, "Nothing is broken.")
    report = verify_record(RECORD, HMAC, outcomes=[OUTCOME])
    assert (report.ok, report.verdict) == (True, "Nothing is broken.")
    assert [each.outcome_id for each in report.outcomes] == [OUTCOME.outcome_id]


@given(st.integers(0, len(OUTCOME.core) - 1), st.integers(1, 255))
def test_any_changed_byte_of_the_core_is_found(at: int, flip: int) -> None:
    core = bytearray(OUTCOME.core)
    core[at] ^= flip
    assert results(replaced(core=bytes(core)))[:2] == [False, False]


@given(st.integers(0, len(OUTCOME.disclosures) - 1), VALUES)
def test_any_changed_value_is_found_and_named(at: int, value: object) -> None:
    disclosure = OUTCOME.disclosures[at]
    changed = msgspec.structs.replace(disclosure, value=["changed", repr(value)])
    left, right = OUTCOME.disclosures[:at], OUTCOME.disclosures[at + 1 :]
    report = verify_outcome(replaced(disclosures=(*left, changed, *right)))
    assert report.of("disclosures").detail.startswith(f"{disclosure.pointer} does not open")


@pytest.mark.parametrize("pointer", [each.pointer for each in OUTCOME.disclosures])
def test_each_value_can_be_redacted_and_none_can_go_missing(pointer: str) -> None:
    left = tuple(each for each in OUTCOME.disclosures if each.pointer != pointer)
    missing = verify_outcome(replaced(disclosures=left)).of("disclosures")
    assert (missing.ok, f"{pointer} is missing" in missing.detail) == (False, True)
    assert results(redact(OUTCOME, pointer, at=NOON, reason="asked for")) == [True] * 4


def test_a_private_copy_has_the_same_hash_and_signature() -> None:
    assert results(OUTCOME.private()) == [True, True, None, True]


@pytest.mark.parametrize("name", ["outcome_id", "context_id", "record_hash", "outcome_hash"])
def test_an_altered_fact_beside_the_core_is_found(name: str) -> None:
    assert results(replaced(**{name: "other"}))[0] is False


def test_an_outcome_of_another_record_is_found() -> None:
    report = verify_record(OTHER, HMAC, outcomes=[OUTCOME])
    assert (report.ok, report.verdict) == (False, f"Outcome {OUTCOME.outcome_id} is broken.")
    (moved,) = report.outcomes
    assert [check.check for check in moved.checks if check.ok is False] == ["link"]
    assert RECORD.record_hash in moved.of("link").detail
    assert OTHER.record_hash in moved.of("link").detail


def test_the_signature_of_another_outcome_or_of_a_record_does_not_count() -> None:
    other = sign(sealed(SCORE), KEYS, NOON)
    for signature, problem in (
        (other.signature, "but this core hashes to"),
        (RECORD.signature, "is not readable"),
    ):
        report = verify_outcome(replaced(signature=signature), HMAC, of=RECORD)
        assert [check.ok for check in report.checks] == [True, False, True, True]
        assert problem in report.of("signature").detail
    swapped = msgspec.structs.replace(RECORD, signature=OUTCOME.signature)
    assert verify_record(swapped, HMAC).of("signature").ok is False


def test_a_statement_that_says_it_is_about_a_record_is_refused() -> None:
    assert OUTCOME.signature is not None
    statement = OUTCOME.signature.statement.replace("CRS-001-OUTCOME-SIG", "CRS-001-SIG")
    forged = Signature(statement, OUTCOME.signature.signature)
    detail = verify_outcome(replaced(signature=forged), HMAC).of("signature").detail
    assert detail == "the signed statement is 'CRS-001-SIG', not 'CRS-001-OUTCOME-SIG'"


def test_the_verdict_names_what_is_missing() -> None:
    unsigned = replaced(signature=None)
    name = f"outcome {OUTCOME.outcome_id}"
    assert verify_outcome(unsigned).verdict == f"Nothing is broken, but {name} is not signed."
    assert verify_outcome(unsigned, HMAC).verdict == f"O{name[1:]}: It is not signed."
    assert verify_outcome(OUTCOME).verdict == (
        f"Nothing is broken, but the signature of {name} was not checked."
    )
    assert verify_outcome(OUTCOME, HMAC, expect="sha256:0").verdict == (
        f"O{name[1:]}: It is not the outcome that was expected."
    )
    accepted = verify_record(RECORD, HMAC, outcomes=[unsigned], signed=False)
    assert accepted.verdict == f"Nothing is broken, but {name} is not signed."


def test_a_core_of_another_kind_is_broken_and_no_error() -> None:
    for core in (RECORD.core, b"[]", b"{", b"[" * 50_000, b"\xff"):
        found = results(replaced(core=core))
        assert (found[0], found[3]) == (False, None)


def test_a_disclosure_of_nothing_is_found() -> None:
    extra = (*OUTCOME.disclosures, Disclosure("/score/value", "", 1))
    detail = verify_outcome(replaced(disclosures=extra)).of("disclosures").detail
    assert detail == "/score/value is disclosed, but the core commits to nothing there"
