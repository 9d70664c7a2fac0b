"""Templates: text with ``{name}`` references, parsed once and never formatted by ``str.format``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain

import msgspec

from headwater.core.codec import encode_custom
from headwater.errors import TemplateError
from headwater.errors.hints import Location

MARK = " …"
"""The end of a shortened text."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN_TYPES = frozenset({str, int, float, bool})


class Template(msgspec.Struct, frozen=True):
    """Literal texts, with a reference between every two of them."""

    literals: tuple[str, ...]
    references: tuple[str, ...]

    def render(self, values: Mapping[str, str]) -> str:
        """Replace each reference by its text, which is not parsed again."""
        parts = [self.literals[0]]
        for reference, literal in zip(self.references, self.literals[1:], strict=True):
            parts += (values[reference], literal)
        return "".join(parts)

    def places(self, values: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
        """Yield each reference with the start and the end of its text in the rendered text."""
        end = len(self.literals[0])
        for reference, literal in zip(self.references, self.literals[1:], strict=True):
            start, end = end, end + len(values[reference])
            yield reference, start, end
            end += len(literal)

    @property
    def text(self) -> str:
        """The text that `parse_template` parses to this template."""
        literals = [literal.replace("{", "{{").replace("}", "}}") for literal in self.literals]
        references = [f"{{{reference}}}" for reference in self.references]
        return "".join(chain(*zip(literals, [*references, ""], strict=True)))


def parse_template(text: str, location: Location | None = None) -> Template:
    """Parse ``{name}`` references; ``{{`` and ``}}`` are literal braces."""
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
                f"lone {token!r} in the template {text!r}; double it for a literal brace",
                location,
            )
        elif not _NAME.fullmatch(match[1]):
            raise TemplateError(
                f"{token} in the template {text!r} is not a feature's name; use a plain name "
                "without attributes, indexes or format specifications",
                location,
            )
        else:
            references.append(match[1])
            literals.append("")
    literals[-1] += text[end:]
    return Template(tuple(literals), tuple(references))


def as_text(value: object) -> str:
    """Format a value for use in a text."""
    if isinstance(value, datetime):
        return value.isoformat()
    # Enums, dates, decimals and similar types become the text or number of their JSON form.
    is_plain = type(value) in _PLAIN_TYPES
    plain = value if is_plain else msgspec.to_builtins(value, enc_hook=encode_custom)
    if isinstance(plain, str | int | float):
        return str(plain)
    return msgspec.json.encode(plain).decode()
