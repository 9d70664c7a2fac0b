"""Ed25519 keys, which need the extra `signing`."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def public_of(seed: bytes) -> bytes:
    """The public key of a private one."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def check_public(public: bytes) -> None:
    """Raises ValueError for bytes that are no public key."""
    Ed25519PublicKey.from_public_bytes(public)


def sign(seed: bytes, message: bytes) -> bytes:
    """The signature of a message."""
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def holds(public: bytes, message: bytes, signature: bytes) -> bool:
    """Says whether the holder of the key signed this message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
