"""A zip file with one record and everything that an auditor needs to verify it."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.resources import files

import msgspec
import yaml

from headwater.core.canonical_json import JsonError, parse
from headwater.records.document import export
from headwater.records.outcomes import OutcomeRecord
from headwater.records.projection import withheld
from headwater.records.record import Record, inner_contexts

_PACKAGE = files("headwater.cli")
_FOLDER = _PACKAGE / "verifier"
# The same time in every bundle, so that one record always gives the same bytes.
_WRITTEN = (1980, 1, 1, 0, 0, 0)
_HEADING = (
    "# For reading only. Verifiers read the JSON document, because its core is the text that was "
    "hashed.\n"
)
# Text of any other form is quoted: parsers of YAML 1.1 and 1.2 disagree about what 1e3 or y is.
_WORD = re.compile(r"[A-Za-z_]\w+", re.ASCII)


def bundle(
    record: Record, inner: Sequence[Record] = (), outcomes: Sequence[OutcomeRecord] = ()
) -> bytes:
    """Return a zip file with a record, those of its inner contexts, a verifier and instructions.

    The outcomes of these contexts are in the documents of their records.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in _files(record, inner, outcomes):
            entry = zipfile.ZipInfo(name, _WRITTEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return packed.getvalue()


def disclosed_text(record: Record) -> str | None:
    """Return the text of a record, or None if it is withheld."""
    values = [item.value for item in record.disclosures if item.pointer == "/output/content"]
    return values[0] if values and isinstance(values[0], str) else None


def _files(
    record: Record, inner: Sequence[Record], outcomes: Sequence[OutcomeRecord]
) -> Iterator[tuple[str, bytes]]:
    text, outcomes_of = disclosed_text(record), defaultdict[str, list[OutcomeRecord]](list)
    for outcome in outcomes:
        outcomes_of[outcome.context_id].append(outcome)
    own = outcomes_of[record.context_id]
    yield "README.md", _readme(record, inner, own, has_text=text is not None).encode()
    yield "record.json", export(record, own)
    for each in inner:
        yield f"inner/{each.context_id}.json", export(each, outcomes_of[each.context_id])
    yield "core.json", record.core
    sums = [(record.record_hash, "core.json")]
    if text is not None:
        yield "content.txt", text.encode()
        sums.append((record.content_hash, "content.txt"))
    lines = [f"{claimed.removeprefix('sha256:')}  {name}\n" for claimed, name in sums]
    yield "SHA256SUMS", "".join(lines).encode()
    for name in ("verify.mjs", "cli.mjs", "README.md"):
        yield f"verifier/{name}", (_FOLDER / name).read_bytes()
    yield "verifier/index.html", verifier_page().encode()


def verifier_page() -> str:
    """Return the web page that verifies a record: a template with the code of the verifier."""
    template = (_FOLDER / "page.html").read_text(encoding="utf-8")
    code = (_FOLDER / "verify.mjs").read_text(encoding="utf-8")
    return template.replace("      // verify.mjs\n", code)


def _readme(
    record: Record, inner: Sequence[Record], outcomes: Sequence[OutcomeRecord], *, has_text: bool
) -> str:
    named = {
        inner_context.context_id: inner_context
        for whole in (record, *inner)
        for inner_context in inner_contexts(whole)
    }
    held = [named[inner_record.context_id] for inner_record in inner]
    parts = [f"{part.name} {part.context_id}" for part in held]
    parts += [
        f"{part.name} {part.context_id} (not in this folder)"
        for part in named.values()
        if part not in held
    ]
    erased = ", ".join(note.pointer for note in record.redactions)
    template = (_PACKAGE / "bundle_readme.md").read_text(encoding="utf-8")
    return template.format(
        context_id=record.context_id,
        record_hash=record.record_hash,
        content_hash=record.content_hash,
        signed="yes; see `signature` in record.json" if record.signature else "no",
        withheld=_withheld(record),
        erased=f"{erased}; see `redactions` in record.json" if erased else "nothing",
        text=" `content.txt` is the text." if has_text else "",
        content="    content.txt     the text of the context\n" if has_text else "",
        inner=", ".join(parts) or "none",
        outcomes=f"{len(outcomes)}; see `outcomes` in record.json" if outcomes else "none",
        inner_commands="".join(
            f"    node verifier/cli.mjs inner/{part.context_id}.json --expect {part.record_hash}\n"
            for part in held
        ),
        inner_files="    inner/          the records of contexts inside this one\n" if held else "",
    )


def _withheld(record: Record) -> str:
    erased = {note.pointer for note in record.redactions}
    try:
        left_out = [pointer for pointer in withheld(record) if pointer not in erased]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "unknown, because core.json cannot be parsed"
    if left_out and not record.disclosures:
        return "every text and value (a private copy)"
    return ", ".join(left_out) or "nothing"


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
