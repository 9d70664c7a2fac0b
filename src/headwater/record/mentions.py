"""Mentions: how a value is found inside of others and of texts, however it is written there. Pure.

A template writes values in its own way, JSON in another and Python in a third; and a text that
stands in JSON has escapes. So a value is looked for in each of its forms, and in each text as it is
and again without its escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from headwater.canonical import canonical, from_tagged
from headwater.errors import RecordValueError
from headwater.templates import as_text

_ESCAPE = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|([bfnrt"'\\/]))""")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def mention(tagged: Any) -> re.Pattern[str]:
    """What matches a value wherever it stands."""
    if isinstance(tagged, str | int):
        return re.compile(_alone(tagged))
    sealed = re.escape(canonical(tagged).decode())
    try:
        value = from_tagged(tagged)
    except RecordValueError:
        return re.compile(sealed)  # somebody altered it: no text was ever made of it
    if not value and value != 0:
        return re.compile(sealed)  # in a text, that something is empty says nothing of anybody
    return re.compile(f"{sealed}|{_alone(value)}")


def readings(tagged: Any) -> list[str]:
    """A value as the texts in which others may be found."""
    return _without_escapes(canonical(tagged).decode())


def begins(wanted: Iterable[re.Pattern[str]], whole: str, shown: str) -> bool:
    """Says whether a value begins in that part of a text which was shown, wherever it ends."""
    parts = _without_escapes(shown)
    texts = zip_longest(_without_escapes(whole), parts, fillvalue=parts[-1])
    return any(
        (found := value.search(text)) is not None and found.start() < len(part)
        for text, part in texts
        for value in wanted
    )


def _without_escapes(text: str) -> list[str]:
    """A text, and what it says without its escapes, for as long as there are any."""
    texts = [text]
    while (plain := _ESCAPE.sub(_character, texts[-1])) != texts[-1]:
        # JSON writes a character beyond 16 bits as two escapes.
        texts.append(plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return texts


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _ESCAPED.get(escape[2], escape[2])


def _alone(value: Any) -> str:
    """What matches a value in a text, and no number that is a part of another one."""
    if isinstance(value, int | float | Decimal):
        return rf"(?<![\w.])(?:{_written(value)})(?!\w|\.\d)"
    return _written(value)


def _written(value: Any) -> str:
    """What matches a value as it is written in a text, by a template, in JSON or by Python."""
    if isinstance(value, dict):
        return _in_any_order(
            rf"{_quoted(key)}\s*:\s*{_quoted(item)}" for key, item in value.items()
        )
    if isinstance(value, set | frozenset):
        return _in_any_order(map(_quoted, value))
    if isinstance(value, list | tuple):
        members = r"\s*,\s*".join(map(_quoted, value))
        return rf"[\[(]\s*{members}\s*,?\s*[\])]"
    return "|".join(map(re.escape, _texts(value)))


def _quoted(value: Any) -> str:
    return rf"""["']?(?:{_written(value)})["']?"""


def _in_any_order(members: Iterable[str]) -> str:
    """What matches a list of all these; it never goes back, or it would try every order."""
    longest_first = sorted(members, key=len, reverse=True)
    member = rf"(?:{'|'.join(longest_first)})\s*(?:,\s*|(?=[\]}}]))"
    return rf"[\[{{]\s*(?>{member}){{{len(longest_first)}}}+[\]}}]"


def _texts(value: Any) -> list[str]:
    """A scalar by itself in a text, inside of a list in a text, and as Python says it."""
    if isinstance(value, str):
        return [value]
    if value is None:
        return ["null", "None"]
    forms = dict.fromkeys((as_text(value), as_text([value])[1:-1].strip('"'), str(value)))
    return [form for form in forms if form not in ("", "null")]  # in JSON, NaN is null
