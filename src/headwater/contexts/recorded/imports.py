"""Outcomes from other systems: scores of Langfuse, OTLP and CSV, read line by line. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from headwater.contexts.recorded.otlp import NamedTrace, OtlpEntries, entries_of, read_entry
from headwater.core.canonical_json import canonical
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest
from headwater.model.outcomes import ImportFormat, Judge, Score
from headwater.model.values import check_utf8
from headwater.telemetry.attributes import CONTEXT_ID

MOST_ENTRIES = 5_000
"""Outcomes that one call imports."""

_HEX = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")
_METADATA = (CONTEXT_ID, "headwater_context_id", "context_id")
_BOM = "\ufeff"


class Sought(NamedTuple):
    """An outcome that was read, and the line that it was read from."""

    line: int
    context_id: str
    given: dict[str, Any]
    """The arguments of `add_outcome`."""


class Unreadable(NamedTuple):
    """A line that is not an outcome of a context."""

    line: int
    problem: str


Read = Iterator[Sought | Unreadable]


def read_outcomes(text: str, file_format: ImportFormat) -> list[Sought | Unreadable]:
    """Return the outcomes in a text, and the lines that are none; in the order of the lines.

    The lines of a single JSON document are its entries, counted from 1.

    Raises:
        InvalidInputError: The text as a whole is not of this format, or has too many outcomes.
    """
    check_utf8(text, "the text")
    read: list[Sought | Unreadable] = []
    for each in _READERS[file_format](text.removeprefix(_BOM)):
        read.append(each)
        if len(read) > MOST_ENTRIES:
            raise InvalidInputError(
                f"a text of more than {MOST_ENTRIES:,} outcomes is not imported at once; divide it"
            )
    return sorted(read, key=lambda each: each.line)


class _LangfuseScore(msgspec.Struct, rename="camel"):
    id: str
    name: str
    data_type: Literal["NUMERIC", "CATEGORICAL", "BOOLEAN", "TEXT", "CORRECTION"] | None = None
    value: float | str | None = None
    string_value: str | None = None
    trace_id: str | None = None
    observation_id: str | None = None
    session_id: str | None = None
    config_id: str | None = None
    comment: str | None = None
    source: str | None = None
    author_user_id: str | None = None
    timestamp: datetime | None = None
    metadata: Any = None

    def context_id(self) -> str | None:
        """Return the id of the context that the metadata or the trace name."""
        return named_context(self.metadata, self.trace_id)

    def said(self) -> dict[str, Any]:
        """Return the score, or the correction that Langfuse stores as one."""
        kind, text = self.data_type, self.string_value
        if text is None and isinstance(self.value, str):
            text = self.value
        if kind is None:
            kind = "NUMERIC" if text is None else "CATEGORICAL"
        if kind == "CORRECTION":
            return {"correction": text}
        field: str = {"NUMERIC": "value", "BOOLEAN": "flag", "TEXT": "text"}.get(kind, "label")
        value = text if field in ("label", "text") else self.value
        if field == "flag":
            value = {"1": True, "0": False, "true": True, "false": False}.get(
                str(text if value is None else f"{value:g}").lower()
            )
        if value is None:
            raise ValueError(f"a score of the type {kind} has no value of that type")
        facts = {"explanation": self.comment, "identifier": self.config_id}
        return {"score": msgspec.convert({"name": self.name, field: value, **facts}, Score)}


def named_context(metadata: Any, trace_id: str | None) -> str | None:
    """Return the id of a context by the metadata of an object of Langfuse, or by its trace."""
    fields = metadata if isinstance(metadata, dict) else {}
    named = next((fields[key] for key in _METADATA if key in fields), trace_id)
    return None if named is None else str(named)


_JUDGES: Mapping[str | None, Judge] = {"ANNOTATION": "human", "EVAL": "model"}


class _Page(msgspec.Struct):
    data: list[msgspec.Raw]


def _langfuse(text: str) -> Read:
    for line, raw in numbered(text, objects_in):
        try:
            score = msgspec.json.decode(raw, type=_LangfuseScore)
            said, context_id = score.said(), score.context_id()
        except (ValueError, RecursionError) as error:
            yield Unreadable(line, f"not a score of Langfuse: {error}")
            continue
        if context_id is None:
            yield _unnamed(line, f"metadata[{CONTEXT_ID!r}] or traceId")
            continue
        links = {"trace_id": score.trace_id, "observation_id": score.observation_id}
        links["session_id"] = score.session_id
        given = {
            "judge": _JUDGES.get(score.source),
            "actor": score.author_user_id,
            "links": {name: value for name, value in links.items() if value is not None},
            "source": "langfuse",
            "source_id": score.id,
            "at": score.timestamp,
        }
        yield Sought(line, context_spelled(context_id), said | given)


def objects_in(text: str) -> list[msgspec.Raw]:
    """Return the objects of Langfuse in a document: a list, a page of the API, or a single one."""
    document = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    if isinstance(document, list):
        return document
    if "data" in document:
        return msgspec.json.decode(text, type=_Page).data
    return [msgspec.Raw(text.encode())]


def _otlp(text: str) -> Read:
    contexts: dict[str, str] = {}
    found: list[tuple[int, OtlpEntries]] = []
    for line, raw in numbered(text, lambda part: entries_of(part.encode())):
        try:
            for each in read_entry(raw):
                if isinstance(each, NamedTrace):
                    contexts.setdefault(each.trace_id, each.context_id)
                else:
                    found.append((line, each))
        except (ValueError, OverflowError, RecursionError) as error:
            yield Unreadable(line, f"not an outcome of the GenAI conventions: {error}")
    for line, each in found:
        context_id = each.context_id or contexts.get(each.trace_id) or each.trace_id
        if context_id:
            yield Sought(line, context_spelled(context_id), each.given)
        else:
            yield _unnamed(line, f"the attribute {CONTEXT_ID!r}, there or at a span of its trace")


def numbered(
    text: str, entries: Callable[[str], list[msgspec.Raw]]
) -> Iterator[tuple[int, msgspec.Raw]]:
    """Yield the entries of one document with their numbers, or of lines with theirs.

    A line that is not a document is an entry itself, which cannot be read.
    """
    try:
        yield from enumerate(entries(text), 1)
        return
    except (ValueError, RecursionError) as error:
        problem = str(error)
    lines = [(number, part) for number, part in enumerate(text.split("\n"), 1) if part.strip()]
    read = [(number, part, _entries_or_none(entries, part)) for number, part in lines]
    if all(found is None for _, _, found in read):
        raise InvalidInputError(f"the text is not a document of this format: {problem}")
    for number, part, found in read:
        yield from ((number, raw) for raw in (_unread(part) if found is None else found))


def _unread(text: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(text.encode())]


def _entries_or_none(
    entries: Callable[[str], list[msgspec.Raw]], text: str
) -> list[msgspec.Raw] | None:
    try:
        return entries(text)
    except (ValueError, RecursionError):
        return None


_FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_COLUMNS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("answer", "score", "correction", "error", "label", "text"), str),
    **dict.fromkeys(("explanation", "identifier", "model", "judge", "actor"), str),
    **dict.fromkeys(("source", "source_id", "outcome_id"), str),
    "value": float,
    "flag": lambda cell: _FLAGS[cell.lower()],
    "at": datetime.fromisoformat,
}
"""The columns of a table besides the id of the context, and how their cells are read."""


def _csv(text: str) -> Read:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = _columns(next(rows, []))
    except csv.Error as error:
        raise InvalidInputError(f"the first line of the table cannot be read: {error}") from error
    while True:
        line = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Unreadable(line, str(error))
            continue
        if any(cell.strip() for cell in cells):
            yield _row(line, header, cells)


def _columns(header: Sequence[str]) -> list[str]:
    columns = [name.strip() for name in header]
    known = ("context_id", *_COLUMNS)
    for name in columns:
        if name not in known:
            raise InvalidInputError(f"unknown column {name!r}; {nearest(name, known)}")
    if "context_id" not in columns or len(set(columns)) < len(columns):
        raise InvalidInputError(
            "the first line of the table has the names of its columns, each once: context_id, and "
            f"some of {', '.join(_COLUMNS)}"
        )
    return columns


def _row(line: int, header: Sequence[str], cells: Sequence[str]) -> Sought | Unreadable:
    if len(cells) != len(header):
        return Unreadable(line, f"{len(cells)} cells, and the header has {len(header)}")
    row = {name: cell for name, cell in zip(header, cells, strict=True) if cell != ""}
    given: dict[str, Any] = {}
    for name, cell in row.items():
        if name != "context_id":
            try:
                given[name] = _COLUMNS[name](cell)
            except (ValueError, KeyError):
                return Unreadable(line, f"{name} is {cell[:40]!r}, which is not valid")
    if "context_id" not in row:
        return _unnamed(line, "the column context_id")
    if given.get("judge") not in (None, "human", "model", "code"):
        return Unreadable(line, f"judge is {given['judge'][:40]!r}; use human, model or code")
    if "outcome_id" not in given and "source_id" not in given:
        # A table that is imported again adds nothing.
        given |= {"source": given.get("source", "csv"), "source_id": _digest(row)}
    given.setdefault("source", "csv")
    return Sought(line, context_spelled(row["context_id"]), given)


def _digest(row: Mapping[str, str]) -> str:
    return sha256(canonical(dict(row))).hexdigest()


def context_spelled(context_id: str) -> str:
    """Return the id of a context; that of its trace in OTLP has the same digits."""
    match = _HEX.fullmatch(context_id.lower())
    return context_id if match is None else "-".join(match.groups())


def _unnamed(line: int, where: str) -> Unreadable:
    return Unreadable(line, f"it names no context; put the context's id into {where}")


_READERS: Mapping[ImportFormat, Callable[[str], Read]] = {
    "langfuse": _langfuse,
    "otlp": _otlp,
    "csv": _csv,
}
