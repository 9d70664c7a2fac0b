"""A zip file with everything that it takes to check one record, far from here and years later."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.resources import files

import msgspec

from headwater.records.document import export
from headwater.records.projection import withheld
from headwater.records.record import Record

_VERIFIER = ("verify.mjs", "cli.mjs", "README.md")
_FOLDER = files("headwater.cli") / "verifier"
_CODE_GOES_HERE = "      // verify.mjs\n"
# The same for every bundle, so that the same record gives the same bytes.
_WRITTEN = (1980, 1, 1, 0, 0, 0)

_README = """\
# Evidence of one context

This folder proves what a language model was given. To check it you need neither Headwater nor a
network, and you need not trust whoever sent it.

    context   {context_id}
    record    {record_hash}
    text      {content_hash}
    signed    {signed}
    withheld  {withheld}
    erased    {erased}

Compare the record's hash with one that you have from elsewhere: the answer to the request, a log,
a ledger. Everything below follows from it.

## With sha256sum

    sha256sum -c SHA256SUMS

(on a Mac: `shasum -a 256 -c SHA256SUMS`). `core.json` holds the exact bytes that were hashed: which
context it was and by which rules, every candidate with its fate, every feature with its age, every
search, the verdict on freshness, tokens, cost and times. Its SHA-256 is the record's hash.{text}

## With Node 18 or later, or a browser

    node verifier/cli.mjs record.json --expect {record_hash}

or open `verifier/index.html` and drop `record.json` on it. That checks what sha256sum cannot:

- every text and value in `record.json` opens the salted commitment that the core has in its place;
- the kept items, joined, make up the text;
- the signature, if you pass the key: `--key-file keys.txt`, and `--signed` to insist on one that
  this key made.

It names what is broken, and ends with 0 if nothing is and 1 if something is. `verifier/README.md`
describes the format for those who would rather write a verifier of their own.

## Files

    record.json     the record as one document: core, values with their salts, signature, redactions
    core.json       the core alone, as it was hashed; do not reformat it
{content}    SHA256SUMS      the hashes that the record claims
    verifier/       the verifier: a few hundred lines of JavaScript without dependencies
"""


def bundle(record: Record) -> bytes:
    """The zip file of a record."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in _files(record):
            entry = zipfile.ZipInfo(name, _WRITTEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return packed.getvalue()


def disclosed_text(record: Record) -> str | None:
    """The final text of a record, unless it is withheld."""
    values = [item.value for item in record.disclosures if item.pointer == "/output/content"]
    return values[0] if values and isinstance(values[0], str) else None


def _files(record: Record) -> Iterator[tuple[str, bytes]]:
    text = disclosed_text(record)
    yield "README.md", _readme(record, has_text=text is not None).encode()
    yield "record.json", export(record)
    yield "core.json", record.core
    sums = [(record.record_hash, "core.json")]
    if text is not None:
        yield "content.txt", text.encode()
        sums.append((record.content_hash, "content.txt"))
    lines = [f"{claimed.removeprefix('sha256:')}  {name}\n" for claimed, name in sums]
    yield "SHA256SUMS", "".join(lines).encode()
    for name in _VERIFIER:
        yield f"verifier/{name}", (_FOLDER / name).read_bytes()
    yield "verifier/index.html", verifier_page().encode()


def verifier_page() -> str:
    """Return the web page that verifies a record: a template with the code of the verifier."""
    template = (_FOLDER / "page.html").read_text(encoding="utf-8")
    code = (_FOLDER / "verify.mjs").read_text(encoding="utf-8")
    return template.replace(_CODE_GOES_HERE, code)


def _readme(record: Record, *, has_text: bool) -> str:
    return _README.format(
        context_id=record.context_id,
        record_hash=record.record_hash,
        content_hash=record.content_hash,
        signed="yes; see `signature` in record.json" if record.signature else "no",
        withheld=_withheld(record),
        erased=_erased(record),
        text=" `content.txt` is the text." if has_text else "",
        content="    content.txt     the text that the model was given\n" if has_text else "",
    )


def _withheld(record: Record) -> str:
    erased = {note.pointer for note in record.redactions}
    try:
        left_out = [pointer for pointer in withheld(record) if pointer not in erased]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "unknown: core.json cannot be read"
    if left_out and not record.disclosures:
        return "every text and value: a private copy, with hashes and facts alone"
    return ", ".join(left_out) or "nothing"


def _erased(record: Record) -> str:
    """What is gone for good; when, why and by whom is in the document."""
    pointers = ", ".join(note.pointer for note in record.redactions)
    return f"{pointers}; see `redactions` in record.json" if pointers else "nothing"
