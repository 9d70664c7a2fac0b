"""The form of a test vector, and functions that break a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headwater.core.canonical_json import canonical, parse
from headwater.records.document import export
from headwater.records.outcomes import OutcomeRecord
from headwater.records.record import Record, hash_of

Document = dict[str, Any]


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The expected checks, and the words that the detail of a check must contain."""

    checks: dict[str, bool | None]
    names: dict[str, list[str]]


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The expected verdict and checks, also of each outcome of a record."""

    ok: bool
    verdict: str
    checks: dict[str, bool | None]
    names: dict[str, list[str]]
    outcomes: list[Checked] = []


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One document, the options of its verification, and the result; None if it is unreadable."""

    name: str
    what: str
    document: str
    keys: str = ""
    expect: str | None = None
    signed: bool | None = None
    expected: Expected | None = None


_SIGNS = {"+": True, "x": False, ".": None}
_NAMES = ("hash", "signature", "disclosures", "content", "reassembly")
_OUTCOME_NAMES = ("hash", "signature", "disclosures", "link")


def text_of(record: Record | OutcomeRecord | Document) -> str:
    """Return the text of a document."""
    if isinstance(record, Record | OutcomeRecord):
        return export(record).decode()
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def case(
    name: str,
    what: str,
    record: Record | Document,
    checks: str,
    *names: str,
    fails: str = "This record is broken.",
    **options: Any,
) -> Case:
    """Return a case; `checks` has one sign for each check: + holds, x broken, . unchecked.

    `fails` is the verdict if a check is broken.
    """
    results = _results(_NAMES, checks)
    broken = next((check for check in _NAMES if results[check] is False), "disclosures")
    return Case(
        name=name,
        what=what,
        document=text_of(record),
        expected=Expected(
            ok=False not in results.values(),
            verdict=fails
            if False in results.values()
            else _passes(record, signature=results["signature"]),
            checks=results,
            names={broken: list(names)} if names else {},
        ),
        **options,
    )


def outcome_case(
    name: str,
    what: str,
    document: OutcomeRecord | Document,
    *checked: Checked,
    says: str,
    checks: str | None = None,
    **options: Any,
) -> Case:
    """Return a case of an outcome alone, or of a record with outcomes, whose ``checks`` are given.

    ``says`` is the verdict.
    """
    own = checked[0] if checks is None else Checked(checks=_results(_NAMES, checks), names={})
    outcomes = [] if checks is None else list(checked)
    failed = [each for each in (own, *outcomes) if False in each.checks.values()]
    expected = Expected(
        ok=not failed, verdict=says, checks=own.checks, names=own.names, outcomes=outcomes
    )
    return Case(name=name, what=what, document=text_of(document), expected=expected, **options)


def checked(checks: str, *names: str) -> Checked:
    """Return the expected checks of an outcome; the first broken one names the words."""
    results = _results(_OUTCOME_NAMES, checks)
    broken = next((check for check in results if results[check] is False), "disclosures")
    return Checked(checks=results, names={broken: list(names)} if names else {})


def _results(names: Sequence[str], signs: str) -> dict[str, bool | None]:
    return {check: _SIGNS[sign] for check, sign in zip(names, signs, strict=True)}


def _passes(record: Record | Document, *, signature: bool | None) -> str:
    if signature:
        return "Nothing is broken."
    signed = record.signature if isinstance(record, Record) else record.get("signature")
    caveat = "its signature was not checked" if signed else "it is not signed"
    return f"Nothing is broken, but {caveat}."


def changed(record: Record | OutcomeRecord, change: Callable[[Document], object]) -> Document:
    """Return the document after a change."""
    document: Document = json.loads(export(record))
    change(document)
    return document


def resealed(record: Record, change: Callable[[Any], object]) -> Document:
    """Return the document after a change of the core, with the new hash."""
    tree = parse(record.core)
    change(tree)
    return with_other_core(record, canonical(tree).decode())


def with_other_core(record: Record, core: str) -> Document:
    """Return the document with another core and its hash."""
    document: Document = json.loads(export(record))
    return document | {"core": core, "record_hash": hash_of(core.encode())}


def deep(record: Record, levels: int) -> Document:
    """Return the document with a core of a later version that has a deeply nested field."""
    nested = '{"a":' * levels + "1" + "}" * levels
    return with_other_core(record, f'{record.core.decode()[:-1]},"zz":{nested}}}')


def with_core(record: Record, old: str, new: str) -> Document:
    """Return the document after one replacement in the text of the core."""
    text = record.core.decode()
    return changed(record, lambda document: document.update(core=text.replace(old, new, 1)))


def disclosure(document: Document, pointer: str) -> Document:
    """Return one disclosure of a document."""
    found: Document = next(each for each in document["disclosures"] if each["pointer"] == pointer)
    return found


def statement(**claims: str) -> Callable[[Document], object]:
    """Return a change of the signed statement."""

    def change(document: Document) -> None:
        statement = json.loads(document["signature"]["statement"]) | claims
        document["signature"]["statement"] = canonical(statement).decode()

    return change
