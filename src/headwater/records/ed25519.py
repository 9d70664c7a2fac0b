"""Ed25519 keys; needs the extra `signing`."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({0, 1, _ORDER_8})
"""The y, or its negative, of the points with which anyone can make signatures."""


def public_of(seed: bytes) -> bytes:
    """Return the public key of a private key."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def check_public(public: bytes) -> None:
    """Raise ValueError if bytes are not a public key."""
    Ed25519PublicKey.from_public_bytes(public)


def is_weak(public: bytes) -> bool:
    """Return whether a public key is a point of small order, or not written in its only form."""
    y = int.from_bytes(public, "little") % 2**255  # without the sign of x
    return y >= _PRIME or min(y, _PRIME - y) in _SMALL_ORDER


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
