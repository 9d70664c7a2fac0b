"""Templates: text with ``{name}`` references, parsed once and never formatted by ``str.format``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from headwater.errors import TemplateError
from headwater.errors.hints import Location

MARK = " …"
"""What a shortened text ends with."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_AS_THEY_ARE = frozenset({str, int, float, bool})


class Template(msgspec.Struct, frozen=True):
    """Literal pieces with a reference between each two of them."""

    literals: tuple[str, ...]
    references: tuple[str, ...]

    def render(self, values: Mapping[str, str]) -> str:
        """Puts each reference's text in its place; that text is never parsed again."""
        parts = [self.literals[0]]
        for reference, literal in zip(self.references, self.literals[1:], strict=True):
            parts += (values[reference], literal)
        return "".join(parts)


def parse_template(text: str, location: Location | None = None) -> Template:
    """Parses ``{name}`` references; ``{{`` and ``}}`` stand for the braces themselves."""
    literals = [""]
    references: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        literals[-1] += text[end : match.start()]
        end = match.end()
        token = match[0]
        if token in ("{{", "}}"):
            literals[-1] += token[0]
        elif match[1] is None:
            raise TemplateError(
                f"lone {token!r} in the template {text!r}; for the brace itself, double it",
                location,
            )
        else:
            references.append(_reference(match[1], text, location))
            literals.append("")
    literals[-1] += text[end:]
    return Template(tuple(literals), tuple(references))


def _reference(name: str, text: str, location: Location | None) -> str:
    if not _NAME.fullmatch(name):
        raise TemplateError(
            f"{{{name}}} in the template {text!r} is not a feature's name; only plain names are "
            "resolved, without attributes, indexes or formats",
            location,
        )
    return name


def as_text(value: object) -> str:
    """How a value reads inside a text."""
    if isinstance(value, datetime):
        return value.isoformat()
    # Enums, dates, decimals and the like are texts or numbers in JSON, and here without its quotes.
    plain = value if type(value) in _AS_THEY_ARE else msgspec.to_builtins(value)
    if isinstance(plain, str | int | float):
        return str(plain)
    return msgspec.json.encode(value).decode()
