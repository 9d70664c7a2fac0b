"""Signatures of the hash of a record or an outcome, and the keyring for them."""

from __future__ import annotations

import hmac
import os
import re
from base64 import b64decode
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, TypeVar

import msgspec

from headwater.core.canonical_json import JsonError, canonical, parse, to_base64
from headwater.errors import (
    InvalidInputError,
    MissingExtraError,
    SignatureError,
    SigningKeyError,
)
from headwater.records.record import RecordStatement, Sealed, Signature, Statement, moment_text

Algorithm = Literal["HMAC-SHA256", "Ed25519"]
S = TypeVar("S", bound=Sealed)
SHORTEST_SECRET = 16
SECRET_BYTES = 32
_KINDS = ("ed25519", "ed25519-pub")
_SEPARATOR = re.compile(r"[:,\s]")
_LINE_END = re.compile(r"[\r\n]+")


class Key(Protocol):
    """A key that checks signatures, and makes them unless only its public half is known."""

    @property
    def key_id(self) -> str: ...

    @property
    def algorithm(self) -> Algorithm: ...

    @property
    def signs(self) -> bool:
        """True if the key can make signatures."""
        ...

    def sign(self, message: bytes) -> bytes: ...

    def verifies(self, message: bytes, signature: bytes) -> bool: ...


class HmacKey(msgspec.Struct, frozen=True):
    """A secret shared by signers and verifiers."""

    key_id: str
    secret: bytes
    algorithm: Algorithm = "HMAC-SHA256"
    signs: bool = True

    def __repr__(self) -> str:
        return f"HmacKey({self.key_id!r})"

    def sign(self, message: bytes) -> bytes:
        return hmac.digest(self.secret, message, "sha256")

    def verifies(self, message: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(message), signature)


class Ed25519Key(msgspec.Struct, frozen=True):
    """A public key, and for signers the seed of its private half."""

    key_id: str
    public: bytes
    seed: bytes | None = None
    algorithm: Algorithm = "Ed25519"

    @property
    def signs(self) -> bool:
        return self.seed is not None

    def __repr__(self) -> str:
        return f"Ed25519Key({self.key_id!r}, signs={self.signs})"

    def sign(self, message: bytes) -> bytes:
        signature: bytes = _ed25519().sign(self.seed, message)
        return signature

    def verifies(self, message: bytes, signature: bytes) -> bool:
        is_valid: bool = _ed25519().verifies(self.public, message, signature)
        return is_valid


class Keyring(msgspec.Struct, frozen=True):
    """Keys by id: the first that can sign makes signatures, all of them check."""

    keys: tuple[Key, ...] = ()

    @property
    def signer(self) -> Key | None:
        return next((key for key in self.keys if key.signs), None)

    def find(self, key_id: str) -> Key | None:
        return next((key for key in self.keys if key.key_id == key_id), None)


def parse_keyring(text: str) -> Keyring:
    """Parse the keys of a setting, the newest first, separated by commas or line ends."""
    lines = [line for line in _LINE_END.split(text) if line.strip()]
    parts = [part.strip() for line in lines for part in line.split(",")]
    keys = tuple(_parse_key(part, f"{at} of {len(parts)}") for at, part in enumerate(parts, 1))
    ids = [key.key_id for key in keys]
    for key_id in ids:
        if ids.count(key_id) > 1:
            raise SigningKeyError(repr(key_id), "is there twice")
    return Keyring(keys)


def generate_key(key_id: str, algorithm: Algorithm) -> str:
    """Return a new key, written as in the setting.

    Raises:
        InvalidInputError: The key could not be read from the setting with this id.
    """
    if not key_id or key_id in _KINDS or _SEPARATOR.search(key_id) or not key_id.isprintable():
        raise InvalidInputError(
            f"{key_id!r} is not a valid key id; use letters, digits and hyphens, such as '2026-01'"
        )
    secret = os.urandom(SECRET_BYTES)
    if algorithm == "HMAC-SHA256":
        return f"{key_id}:{secret.hex()}"
    _ed25519()  # raises without the library that uses such a key
    return f"ed25519:{key_id}:{to_base64(secret)}"


def public_text(key: Ed25519Key) -> str:
    """Return the public half of a key, written as in the setting."""
    return f"ed25519-pub:{key.key_id}:{to_base64(key.public)}"


def _parse_key(text: str, which: str) -> Key:
    kind, _, rest = text.partition(":")
    if kind in _KINDS:
        return _parse_ed25519(kind, rest, which)
    if not text:
        raise SigningKeyError(which, "is empty")
    # Key ids are public, so they are never derived from the secret: that would confirm guesses.
    if not kind or ":" not in text:
        raise SigningKeyError(which, "has no key id")
    if len(rest) < SHORTEST_SECRET:
        raise SigningKeyError(
            which, f"has a secret of less than {SHORTEST_SECRET} characters, which can be guessed"
        )
    return HmacKey(kind, rest.encode())


def _parse_ed25519(kind: str, text: str, which: str) -> Ed25519Key:
    key_id, _, encoded = text.partition(":")
    ed25519 = _ed25519()
    try:
        padded = encoded.translate(str.maketrans("-_", "+/")) + "=" * (-len(encoded) % 4)
        raw = b64decode(padded, validate=True)
        if kind == "ed25519":
            key = Ed25519Key(key_id, ed25519.public_of(raw), raw)
        else:
            ed25519.check_public(raw)
            key = Ed25519Key(key_id, raw)
    except ValueError as error:
        raise SigningKeyError(which, "is not the base64 of 32 bytes") from error
    if ed25519.is_weak(key.public):
        raise SigningKeyError(which, "is a weak public key, with which anyone can make signatures")
    if not key_id:
        raise SigningKeyError(which, "has no key id")
    return key


def _ed25519() -> ModuleType:
    """Import the Ed25519 module on first use: its library is an optional extra."""
    try:
        return import_module("headwater.records.ed25519")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headwater"):
            raise
        raise MissingExtraError("an Ed25519 key", "signing") from error


def sign(sealed: S, keyring: Keyring, at: datetime) -> S:
    """Return a record or an outcome signed with the keyring's first key that can sign."""
    key, form = keyring.signer, sealed.FORM
    if key is None:
        raise SignatureError(
            f"{form.noun} {sealed.sealed_hash} cannot be signed: no key that signs is configured; "
            "set HEADWATER_SIGNING_KEY"
        )
    statement = canonical(
        form.statement(
            spec=form.statement_spec,
            sealed_hash=sealed.sealed_hash,
            sealed_id=sealed.sealed_id,
            signed_at=moment_text(at),
            key_id=key.key_id,
            algorithm=key.algorithm,
        )
    )
    signature = Signature(statement.decode(), to_base64(key.sign(statement)))
    return msgspec.structs.replace(sealed, signature=signature)


def statement_of(signature: Signature, kind: type[Statement] = RecordStatement) -> Statement:
    """Parse the statement of a signature without checking it."""
    try:
        return msgspec.convert(parse(signature.statement), kind)
    except (JsonError, msgspec.ValidationError) as error:
        raise SignatureError(f"the signed statement is not readable: {error}") from error
