"""Signatures and keyrings: rotation, and keys that are none."""

from __future__ import annotations

import json
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator

import msgspec
import pytest

from headwater.errors import MissingExtraError, SignatureError, SigningKeyError
from headwater.records.record import Signature
from headwater.records.sealing import seal
from headwater.records.signing import Ed25519Key, parse_keyring, sign, statement_of
from headwater.records.verify import verify_record
from verifier.generator.samples import ED25519, ED25519_PUBLIC, NOON, sample

RECORD = seal(sample())
KEY = "k1:correct horse battery"
OLD = "2025:the secret of last year"


def test_the_first_key_signs_and_all_verify() -> None:
    old = sign(RECORD, parse_keyring(OLD), NOON)
    both = f"2026:the secret of this year, {OLD}"
    ring = parse_keyring(both)
    new = sign(RECORD, ring, NOON)
    assert new.signature is not None
    assert statement_of(new.signature).key_id == "2026"
    assert verify_record(old, both).of("signature").ok is True
    assert verify_record(new, both).of("signature").ok is True


def test_the_statement_covers_who_what_when_and_how() -> None:
    signature = sign(RECORD, parse_keyring(KEY), NOON).signature
    assert signature is not None
    assert json.loads(signature.statement) == {
        "spec": "CRS-001-SIG",
        "record_hash": RECORD.record_hash,
        "context_id": RECORD.context_id,
        "signed_at": "2026-01-02T12:00:00.250000Z",
        "key_id": "k1",
        "algorithm": "HMAC-SHA256",
    }


def test_a_secret_may_have_colons_after_its_id() -> None:
    keys = "k1:a:b:c:and so it goes on"
    ring = parse_keyring(keys)
    assert [key.key_id for key in ring.keys] == ["k1"]
    assert verify_record(sign(RECORD, ring, NOON), keys).of("signature").ok


def test_a_public_key_verifies_and_cannot_sign() -> None:
    public = parse_keyring(ED25519_PUBLIC)
    report = verify_record(sign(RECORD, parse_keyring(ED25519), NOON), ED25519_PUBLIC)
    assert report.of("signature").ok is True
    assert public.signer is None
    with pytest.raises(SignatureError, match="HEADWATER_SIGNING_KEY"):
        sign(RECORD, public, NOON)


def test_the_first_key_that_can_sign_signs() -> None:
    ring = parse_keyring(f"{ED25519_PUBLIC},{KEY}")
    assert ring.signer is ring.keys[1]


def test_a_key_may_be_written_in_either_base64() -> None:
    seed = bytes(range(224, 256))
    plain, urlsafe = b64encode(seed).decode(), urlsafe_b64encode(seed).decode().rstrip("=")
    assert plain != urlsafe
    assert parse_keyring(f"ed25519:a:{plain}") == parse_keyring(f"ed25519:a:{urlsafe}")


def test_no_key_means_no_signature_is_made() -> None:
    assert parse_keyring("  ").signer is None
    with pytest.raises(SignatureError, match="no key that signs"):
        sign(RECORD, parse_keyring(""), NOON)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("k1:", "1 of 1 has a secret of less than 16 characters, which can be guessed"),
        ("k1:hush", "1 of 1 has a secret of less than 16 characters"),
        ("k1:hush56789abcdef", "less than 16 characters"),
        ("hush is a secret without an id", "1 of 1 has no key id; write 'key_id:secret'"),
        (":hush is a secret without an id", "1 of 1 has no key id"),
        (f"{KEY},", "2 of 2 is empty"),
        (f"{KEY},k1:hush another secret", "'k1' is there twice"),
        ("ed25519:k1:hush", "not the base64 of 32 bytes"),
        ("ed25519:k1:****", "not the base64 of 32 bytes"),
        ("ed25519-pub:k1:aHVzaA==", "not the base64 of 32 bytes"),
        (f"ed25519-pub:k1:*{'A' * 43}", "not the base64 of 32 bytes"),
        (f"ed25519-pub:k1:{'A' * 43}:hush", "not the base64 of 32 bytes"),
        (f"ed25519::{b64encode(bytes(32)).decode()}", "has no key id"),
    ],
)
def test_an_invalid_key_is_refused_without_showing_it(text: str, problem: str) -> None:
    with pytest.raises(SigningKeyError, match=problem) as refused:
        parse_keyring(text)
    assert "hush" not in str(refused.value)


PRIME = 2**255 - 19
ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
WEAK = [0, 1, PRIME - 1, ORDER_8, PRIME - ORDER_8, PRIME, PRIME + 1, PRIME + 3, 2**255 - 1]


@pytest.mark.parametrize("sign_of_x", [0, 2**255])
@pytest.mark.parametrize("y", WEAK)
def test_a_public_key_with_which_anyone_can_sign_is_refused(y: int, sign_of_x: int) -> None:
    public = b64encode((y + sign_of_x).to_bytes(32, "little")).decode()
    with pytest.raises(SigningKeyError, match="1 of 1 is a weak public key"):
        parse_keyring(f"ed25519-pub:a:{public}")


def test_a_signature_that_anyone_can_make_fits_a_weak_public_key() -> None:
    identity = (1).to_bytes(32, "little")
    forged = identity + bytes(32)
    assert Ed25519Key("a", identity).verifies(b"any message", forged)
    assert Ed25519Key("a", identity).verifies(b"another one", forged)


def test_keys_do_not_show_their_secrets() -> None:
    shown = repr(parse_keyring(f"k1:hush of many letters,{ED25519}"))
    assert shown == "Keyring(keys=(HmacKey('k1'), Ed25519Key('auditors', signs=True)))"


def test_an_invalid_statement_cannot_be_read() -> None:
    with pytest.raises(SignatureError, match="not readable"):
        statement_of(Signature("{}", ""))


@pytest.fixture
def no_cryptography(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Python in which the extra is not installed."""
    monkeypatch.delitem(sys.modules, "headwater.records.ed25519", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    yield
    sys.modules.pop("headwater.records.ed25519", None)


@pytest.mark.usefixtures("no_cryptography")
def test_ed25519_without_its_extra_names_it() -> None:
    with pytest.raises(MissingExtraError, match=r"headwater\[signing\]"):
        parse_keyring(ED25519)
    assert parse_keyring(KEY).signer is not None


def test_a_signature_moved_to_another_record_is_named() -> None:
    other = sign(seal(sample()), parse_keyring(KEY), NOON)
    report = verify_record(msgspec.structs.replace(RECORD, signature=other.signature), KEY)
    assert other.record_hash in report.of("signature").detail


def test_an_ed25519_key_verifies_only_the_signed_message() -> None:
    [key] = parse_keyring(ED25519).keys
    assert isinstance(key, Ed25519Key)
    assert key.verifies(b"message", key.sign(b"message"))
    assert not key.verifies(b"another", key.sign(b"message"))
