"""Images: their size from the first bytes, and their tokens by the rules of the families."""

from __future__ import annotations

import struct

import pytest

from headwater.core.models import ImageRule
from headwater.messages.counting import counter_for
from headwater.messages.images import Size, image_tokens, size_of
from headwater.messages.parts import Blob, Uri


def png(width: int, height: int) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"
    return head + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


def jpeg(width: int, height: int) -> bytes:
    tables = b"\xff\xe0\x00\x04JF\xff\xc4\x00\x03\x00\xff"
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width)
    return b"\xff\xd8" + tables + frame + b"\x03" * 12


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00" * 3


def webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


LOSSY = webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480))
LOSSLESS = webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14))
EXTENDED = webp(b"VP8X", b"\x00" * 4 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"))


@pytest.mark.parametrize(
    "image", [png(640, 480), jpeg(640, 480), gif(640, 480), LOSSY, LOSSLESS, EXTENDED]
)
def test_the_size_is_read_from_the_head(image: bytes) -> None:
    assert size_of(image) == Size(640, 480)
    for length in range(len(image) - 1):
        size_of(image[:length])  # a head that is cut off does not raise


@pytest.mark.parametrize("image", [b"", b"BM", png(0, 5), png(5, 5)[:20], b"\xff\xd8\xff\xd9"])
def test_an_unreadable_head_has_no_size(image: bytes) -> None:
    assert size_of(image) is None


def _tokens(model: str, width: int, height: int) -> int:
    return counter_for(model).part_tokens(Blob(mime_type="image/png", content=png(width, height)))


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4o", 2048, 4096, 1105),
        ("gpt-4o", 500, 500, 255),
        ("gpt-4o-mini", 1024, 1024, 25_501),
        ("gpt-4.1-mini", 1024, 1024, 1_659),
        ("gpt-4.1-mini", 8000, 8000, 2_489),
        ("claude-sonnet-4-5", 200, 200, 54),
        ("claude-sonnet-4-5", 1000, 1000, 1_334),
        ("claude-sonnet-4-5", 8000, 8000, 1_640),
        ("gemini-2.5-pro", 300, 300, 258),
        ("gemini-2.5-pro", 960, 540, 1_548),
        ("gemini-3.5-flash", 960, 540, 1_120),
    ],
)
def test_the_tokens_of_an_image_follow_its_family(
    model: str, width: int, height: int, tokens: int
) -> None:
    assert _tokens(model, width, height) == tokens


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-6-sol", "claude-opus-5", "gemini-2.5-pro", "x"])
def test_an_image_of_unknown_size_costs_as_much_as_the_largest(model: str) -> None:
    counter = counter_for(model)
    largest = counter.part_tokens(Uri(uri="https://example.com/a.png"))
    assert counter.part_tokens(Blob(mime_type="image/png", content=b"?")) == largest
    assert max(_tokens(model, 20_000, 20_000), _tokens(model, 20_000, 10)) <= largest


def test_a_rule_never_gives_more_than_its_largest() -> None:
    rule = ImageRule(kind="tiles", largest=100, base=85, each=170)
    assert image_tokens(Blob(mime_type="image/png", content=png(900, 900)), rule) == 100
