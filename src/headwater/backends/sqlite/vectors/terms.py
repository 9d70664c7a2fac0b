"""Terms of chunks as tokens of FTS5, which must neither analyse nor split them again."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The tokenizer of the table keeps other characters; it would fold or split at these.
_UNSAFE = re.compile(r"[\x00-/:-`{-\x7f]")
_UNSAFE_BESIDES_SPACE = re.compile(r"[\x00-\x1f!-/:-`{-\x7f]")


def joined(terms: Sequence[str]) -> str:
    """Return terms as one text of tokens."""
    text = " ".join(terms)
    if text.count(" ") < len(terms) and _UNSAFE_BESIDES_SPACE.search(text) is None:
        return text
    return " ".join([_token(term) for term in terms])


def token(generation: int, term: str) -> str:
    """Return the token under which a term is found in one generation."""
    return prefix(generation) + _token(term)


def prefix(generation: int) -> str:
    """Return the beginning of all tokens of a generation."""
    return f"{generation}."


def _token(term: str) -> str:
    return _UNSAFE.sub(_escaped, term)


def _escaped(match: re.Match[str]) -> str:
    return f"_{ord(match[0]):02x}"
