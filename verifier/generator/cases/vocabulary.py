"""How a test vector is written down, and the ways to break a record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.core.canonical_json import canonical, parse
from headwater.records.document import export
from headwater.records.record import Record, hash_of

Document = dict[str, Any]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """How the ladder has to look, what it comes down to, and what a rung's detail has to name."""

    ok: bool
    verdict: str
    checks: dict[str, bool | None]
    names: dict[str, list[str]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One document, how to verify it and what has to come out; None where it is no document."""

    name: str
    what: str
    document: str
    keys: str = ""
    expect: str | None = None
    signed: bool = False
    expected: Expected | None = None


_SIGNS = {"+": True, "x": False, ".": None}
_NAMES = ("hash", "signature", "disclosures", "content", "reassembly")


def text_of(record: Record | Document) -> str:
    """The text of a document."""
    if isinstance(record, Record):
        return export(record).decode()
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def case(
    name: str,
    what: str,
    record: Record | Document,
    ladder: str,
    *names: str,
    fails: str = "This record is broken.",
    **options: Any,
) -> Case:
    """A case; the ladder is one sign for each rung: + holds, x is broken, . cannot be checked.

    `fails` is the verdict if something is broken.
    """
    checks = {check: _SIGNS[sign] for check, sign in zip(_NAMES, ladder, strict=True)}
    broken = next((check for check in _NAMES if checks[check] is False), "disclosures")
    return Case(
        name=name,
        what=what,
        document=text_of(record),
        expected=Expected(
            ok=False not in checks.values(),
            verdict=fails
            if False in checks.values()
            else _passes(record, signature=checks["signature"]),
            checks=checks,
            names={broken: list(names)} if names else {},
        ),
        **options,
    )


def _passes(record: Record | Document, *, signature: bool | None) -> str:
    if signature:
        return "Nothing is broken."
    signed = record.signature if isinstance(record, Record) else record.get("signature")
    unproved = "its signature was not checked" if signed else "it is not signed"
    return f"Nothing is broken, but {unproved}."


def changed(record: Record, change: Callable[[Document], object]) -> Document:
    """The document after someone changed it."""
    document: Document = json.loads(export(record))
    change(document)
    return document


def resealed(record: Record, change: Callable[[Any], object]) -> Document:
    """The document after someone changed the core and made its hash fit again."""
    tree = parse(record.core)
    change(tree)
    return recored(record, canonical(tree).decode())


def recored(record: Record, core: str) -> Document:
    """The document with another core and its hash."""
    document: Document = json.loads(export(record))
    return document | {"core": core, "record_hash": hash_of(core.encode())}


def deep(record: Record, levels: int) -> Document:
    """The document with a core of some later version in which a field has so many levels."""
    nested = '{"a":' * levels + "1" + "}" * levels
    return recored(record, f'{record.core.decode()[:-1]},"zz":{nested}}}')


def with_core(record: Record, old: str, new: str) -> Document:
    """The document after someone replaced a part of the core's text, once."""
    text = record.core.decode()
    return changed(record, lambda document: document.update(core=text.replace(old, new, 1)))


def disclosure(document: Document, pointer: str) -> Document:
    """One disclosure of a document."""
    found: Document = next(each for each in document["disclosures"] if each["pointer"] == pointer)
    return found


def statement(**claims: str) -> Callable[[Document], object]:
    """A change of what the signature says."""

    def change(document: Document) -> None:
        statement = json.loads(document["signature"]["statement"]) | claims
        document["signature"]["statement"] = canonical(statement).decode()

    return change
