"""The kind and the size of an image, read from its bytes, and its tokens by a family's rule."""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple

from headwater.core.models import ImageRule
from headwater.errors import InvalidInputError
from headwater.messages.parts import Blob, Uri

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# Markers of a JPEG's frame, which has its size; the three left out are tables.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_LONGEST_SIDE, _SHORT_SIDE, _TILE = 2_048, 768, 512
_PATCH = 32
_SMALL_SIDE = 384


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


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def size_of(image: bytes) -> Size | None:
    """Return the size that the head of an image states, or None if it cannot be read."""
    if image.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _pair(image, 16, 4, "big")
    elif image.startswith((b"GIF87a", b"GIF89a")):
        size = _pair(image, 6, 2, "little")
    elif image.startswith(b"\xff\xd8"):
        size = _jpeg_size(image)
    elif image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        size = _webp_size(image)
    else:
        return None
    return size if size and size.width and size.height else None


def _pair(image: bytes, start: int, length: int, order: Literal["big", "little"]) -> Size | None:
    if len(image) < start + 2 * length:
        return None
    first, second = image[start : start + length], image[start + length : start + 2 * length]
    return Size(int.from_bytes(first, order), int.from_bytes(second, order))


def _jpeg_size(image: bytes) -> Size | None:
    position = 2
    while position + 4 <= len(image) and image[position] == 0xFF:
        marker = image[position + 1]
        if marker in _FRAMES:
            turned = _pair(image, position + 5, 2, "big")  # the height comes first
            return turned and Size(turned.height, turned.width)
        # A fill byte stands for itself; all markers before the frame have a length.
        length = int.from_bytes(image[position + 2 : position + 4], "big")
        position += 1 if marker == 0xFF else 2 + length
    return None


def _webp_size(image: bytes) -> Size | None:
    kind = image[12:16]
    if kind == b"VP8X" and len(image) >= 30:
        width, height = (int.from_bytes(image[at : at + 3], "little") + 1 for at in (24, 27))
        return Size(width, height)
    if kind == b"VP8L" and len(image) >= 25:
        bits = int.from_bytes(image[21:25], "little")
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    size = _pair(image, 26, 2, "little") if kind == b"VP8 " else None
    return size and Size(size.width & 0x3FFF, size.height & 0x3FFF)


def image_tokens(image: Blob | Uri, rule: ImageRule) -> int:
    """Return the tokens of an image; one of unknown size has as many as the largest."""
    size = size_of(image.content) if isinstance(image, Blob) else None
    return rule.largest if size is None else min(_tokens(size, rule), rule.largest)


def _tokens(size: Size, rule: ImageRule) -> int:
    width, height = size
    match rule.kind:
        case "tiles":
            scale = min(1, _LONGEST_SIDE / max(size))
            scale = min(scale, _SHORT_SIDE / min(size))
            tiles = ceil(width * scale / _TILE) * ceil(height * scale / _TILE)
            return rule.base + rule.each * tiles
        case "crops":
            if max(size) <= _SMALL_SIDE:
                return rule.each
            side = max(1, int(min(size) / 1.5))
            return rule.each * ceil(width / side) * ceil(height / side)
        case "patches":
            patches = ceil(width / _PATCH) * ceil(height / _PATCH)
            return ceil(patches * rule.percent / 100)
        case "pixels":
            return ceil(width * height / rule.each)
        case "fixed":
            return rule.largest
