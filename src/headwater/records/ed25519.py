"""Ed25519 keys; needs the extra `signing`."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def public_of(seed: bytes) -> bytes:
    """Return the public key of a private key."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def check_public(public: bytes) -> None:
    """Raise ValueError if bytes are not a public key."""
    Ed25519PublicKey.from_public_bytes(public)


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the signature of a message."""
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return True if the holder of the key signed this message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
