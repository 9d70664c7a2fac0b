"""YAML export of a record's document, for people to read."""

import re
import sys
from contextlib import suppress

import yaml

from headwater.core.canonical_json import JsonError, parse

_HEADING = (
    "# For reading only. Verifiers read the JSON document, because its core is the text that was "
    "hashed.\n"
)
# Text of any other form is quoted: parsers of YAML 1.1 and 1.2 disagree about what 1e3 or y is.
_WORD = re.compile(r"[A-Za-z_]\w+", re.ASCII)


class _Dumper(yaml.SafeDumper):
    """A dumper that writes text on several lines as a block and repeats equal values."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    quotes = None if _WORD.fullmatch(text) else '"'
    style = "|" if _fits_block(text) else quotes
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def document_to_yaml(document: bytes) -> str:
    """Return a record's document as YAML, with its core parsed."""
    fields = parse(document)
    with suppress(JsonError):  # a damaged core stays text
        fields["core"] = parse(fields["core"])
    return _HEADING + to_yaml(fields)


def to_yaml(value: object) -> str:
    """Return a JSON value as YAML that parsers of YAML 1.1 and 1.2 read as an equal value."""
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=sys.maxsize)


def _fits_block(text: str) -> bool:
    """Return whether a YAML block keeps every character of a text with several lines."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0].strip())
        and bool(lines[-1])
        and lines[0][0] != " "
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )
