"""The kind and the size of an image, read from the beginning of its bytes."""

from __future__ import annotations

from headwater.errors import InvalidInputError

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def mime_type_of(image: bytes) -> str:
    """Return the MIME type of an image of a kind that models take; raise for any other."""
    for signature, mime_type in _SIGNATURES:
        if image.startswith(signature):
            return mime_type
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    raise InvalidInputError(
        "an image is PNG, JPEG, GIF or WebP; pass mime_type= for one of another kind"
    )
