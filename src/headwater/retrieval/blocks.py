"""The blocks of a document: headings, paragraphs, code and tables, as Markdown marks them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from headwater.core.graphemes import grapheme_start

BlockKind = Literal["heading", "paragraph", "code", "table"]

_END = r"(?:\r\n?|\n)"
_REST = rf"[^\r\n]*+{_END}?+"
_FENCE = r"[ ]{0,3}(?:`{3,}(?=[^`\r\n]*+(?:[\r\n]|\Z))|~{3,})"
_HEADING = r"[ ]{0,3}\#{1,6}(?=[\s]|\Z)"
_ITEM = r"[ \t]*+(?:[-*+•]|\d{1,9}[.)])[ \t]"
_ROW = r"[ \t]*+\|"

# Quantifiers are possessive (`*+`), so that no text makes the search try a match in many ways.
_BLOCK = re.compile(
    rf"""
    (?:
        (?P<heading> {_HEADING}{_REST} )
      | (?P<underlined> (?!{_ITEM}|{_FENCE}|{_ROW})[^\r\n]*+{_END}
            [ ]{{0,3}}(?P<line>=++|-++)[ \t]*+(?:{_END}|\Z) )
      | (?P<code>
            [ ]{{0,3}}(?P<marks>`{{3,}}(?=[^`\r\n]*+(?:[\r\n]|\Z))|~{{3,}}){_REST}
            (?:(?![ ]{{0,3}}(?P=marks))[^\r\n]*+{_END})*+ {_REST}
          | (?:(?:[ ]{{4}}|\t){_REST})++ )
      | (?P<table> (?:{_ROW}{_REST})++ )
      | (?P<paragraph>
            [^\r\n]++{_END}?+
            (?:(?!{_HEADING}|{_FENCE}|{_ROW}|\s*+(?:[\r\n]|\Z))[^\r\n]++{_END}?+)*+ )
    )
    (?:[^\S\r\n]*+{_END})*+
    """,
    re.VERBOSE,
)
_EMPTY_LINES = re.compile(r"(?:\s*[\r\n])?")

# A sentence does not begin with a small letter: that would be an abbreviation.
_SENTENCE = re.compile(
    # also Arabic, Devanagari, Ethiopic, Burmese and Khmer
    r"[.!?…\u061f\u06d4\u0964\u0965\u1362\u104b\u17d4][\"'”’)\]]*+\s++(?![a-z])"
    # Chinese and Japanese, where no space follows
    r"|[\u3002\uff01\uff1f][”’」』\uff09]*+\s*+"
    rf"|[\r\n](?={_ITEM})"
)
_CODE_PARAGRAPH = re.compile(rf"{_END}[^\S\r\n]*+{_END}(?=\S)")
_SPACE = re.compile(r"\s++")
_LINE = re.compile(rf"{_END}(?=[^\r\n])")


class Block(NamedTuple):
    """A part of a text that begins with a line; the empty lines after it belong to it."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0
    """The level of a heading, from 1 to 6."""


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a text; all but empty lines at its start belongs to one.

    A text that is not Markdown consists of paragraphs, which end at empty lines.
    """
    start = content_start(text, 0, len(text))
    while start < len(text) and (match := _BLOCK.match(text, start)):
        kind = match.lastgroup
        if kind == "heading":
            yield Block(start, match.end(), "heading", match["heading"].count("#", 0, 9))
        elif kind == "underlined":
            yield Block(start, match.end(), "heading", 1 if match["line"][0] == "=" else 2)
        else:
            yield Block(start, match.end(), cast("BlockKind", kind))
        start = match.end()


def content_start(text: str, start: int, end: int) -> int:
    """Return the start of the first line with content, which may be indented."""
    match = _EMPTY_LINES.match(text, start, end)
    return match.end() if match else start


def sentences(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where sentences and list items begin inside a part of a text."""
    return _ends(_SENTENCE, text, start, end)


def code_paragraphs(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where lines without indentation follow an empty line inside a part of a text."""
    return _ends(_CODE_PARAGRAPH, text, start, end)


def lines(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where lines begin inside a part of a text."""
    return _ends(_LINE, text, start, end)


def words(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where words begin inside a part of a text with spaces."""
    return _ends(_SPACE, text, start, end)


def graphemes(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where graphemes, the characters that people see, begin inside a part of a text."""
    return (at for at in range(start + 1, end) if grapheme_start(text, at) == at)


def _ends(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in pattern.finditer(text, start, end) if match.end() < end)
