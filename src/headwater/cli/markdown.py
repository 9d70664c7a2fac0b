"""Markdown: texts that show as they are, code spans and tables."""

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"[\\`*\[\]<>|#~&$]|(?<!\w)_|_(?!\w)")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, in which a pipe needs a backslash also in code spans."""
    cells = [[re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """Return text that shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def code(text: str) -> str:
    """Return a code span."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    padded = f" {text} " if text.startswith("`") or text.endswith("`") else text
    return f"{fence}{padded}{fence}"
