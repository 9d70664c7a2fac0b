"""Templates: text with ``{name:format|fallback}`` references, never formatted by ``str.format``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from headwater.core.formats import as_text, formatted, parse_spec
from headwater.errors import FormatError, TemplateError
from headwater.errors.hints import Location

MARK = " …"
"""The end of a shortened text."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_REFERENCE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::([^|]*))?(?:\|(.*))?", re.ASCII | re.DOTALL)


class Format(msgspec.Struct, frozen=True):
    """How a reference is written: its value by ``spec``, and ``fallback`` if it has no value."""

    spec: str | None = None
    fallback: str | None = None

    @property
    def text(self) -> str:
        """The part of the reference after its name."""
        spec = "" if self.spec is None else f":{self.spec}"
        return spec if self.fallback is None else f"{spec}|{self.fallback}"


_AS_IT_IS = Format()


class Template(msgspec.Struct, frozen=True):
    """Literal texts, with a reference between every two of them."""

    literals: tuple[str, ...]
    references: tuple[str, ...]
    formats: tuple[Format, ...] | msgspec.UnsetType = msgspec.UNSET
    """How each reference is written; absent if all are written as they are."""

    def render(self, values: Mapping[str, Any]) -> str:
        """Replace each reference by the text of its value, which is not parsed again.

        Raises:
            FormatError: The format of a reference does not fit its value.
        """
        return "".join(chain(*zip(self.literals, [*self._texts(values), ""], strict=True)))

    def places(self, values: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
        """Yield each reference with the start and the end of its text in the rendered text."""
        end = len(self.literals[0])
        written = zip(self.references, self._texts(values), self.literals[1:], strict=True)
        for reference, text, literal in written:
            start, end = end, end + len(text)
            yield reference, start, end
            end += len(literal)

    def texts_of(self, name: str, value: object) -> set[str]:
        """Return the texts that formats of a name write for a value."""
        written = zip(self.references, self._formats, strict=True)
        return {_written(name, value, form) for ref, form in written if ref == name and form.spec}

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the value itself if the template is one reference without a format, else text."""
        if self.literals == ("", "") and not self._formats[0].spec:
            value = values[self.references[0]]
            return self._formats[0].fallback if value is None else value
        return self.render(values)

    def is_missing(self, values: Mapping[str, Any]) -> bool:
        """Return whether a reference has neither a value nor a fallback."""
        return any(values[name] is None for name in self.needed)

    @property
    def needed(self) -> tuple[str, ...]:
        """The references without a fallback."""
        written = zip(self.references, self._formats, strict=True)
        return tuple(name for name, form in written if form.fallback is None)

    @property
    def text(self) -> str:
        """The text that `parse_template` parses to this template."""
        literals = [literal.replace("{", "{{").replace("}", "}}") for literal in self.literals]
        written = zip(self.references, self._formats, strict=True)
        references = [f"{{{name}{form.text}}}" for name, form in written]
        return "".join(chain(*zip(literals, [*references, ""], strict=True)))

    @property
    def _formats(self) -> tuple[Format, ...]:
        if self.formats is msgspec.UNSET:
            return (_AS_IT_IS,) * len(self.references)
        return self.formats

    def _texts(self, values: Mapping[str, Any]) -> list[str]:
        if self.formats is msgspec.UNSET:
            texts = [values[name] for name in self.references]
            return ["" if value is None else as_text(value) for value in texts]
        written = zip(self.references, self.formats, strict=True)
        return [_written(name, values[name], form) for name, form in written]


def _written(name: str, value: object, form: Format) -> str:
    if value is None:
        return form.fallback or ""
    if not form.spec:
        return as_text(value)
    try:
        return formatted(value, form.spec)
    except ValueError as error:
        raise FormatError(name, form.spec, type(value).__qualname__, str(error)) from error


def parse_template(text: str, location: Location | None = None) -> Template:
    """Parse ``{name:format|fallback}`` references; ``{{`` and ``}}`` are literal braces.

    Format and fallback may be left out. A format ends at the first ``|``.
    """
    literals = [""]
    references: list[str] = []
    formats: list[Format] = []
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
        else:
            name, form = _reference(token, match[1], text, location)
            references.append(name)
            formats.append(form)
            literals.append("")
    literals[-1] += text[end:]
    is_plain = all(form == _AS_IT_IS for form in formats)
    return Template(
        tuple(literals), tuple(references), msgspec.UNSET if is_plain else tuple(formats)
    )


def _reference(token: str, inside: str, text: str, location: Location | None) -> tuple[str, Format]:
    match = _REFERENCE.fullmatch(inside)
    if match is None:
        raise TemplateError(
            f"{token} in the template {text!r} is not a feature's name; use a plain name without "
            "attributes or indexes, which a format or a fallback may follow, such as "
            "{balance:,.2f|unknown}",
            location,
        )
    name, spec, fallback = match.groups()
    if spec is not None:
        try:
            parse_spec(spec)
        except ValueError as error:
            raise TemplateError(
                f"{token} in the template {text!r} has the format {spec!r}, which is not valid: "
                f"{error}",
                location,
            ) from error
    return name, Format(spec, fallback)
