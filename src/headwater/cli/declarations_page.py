"""What is declared, in words: the facts of one declaration, and a page of all in Markdown."""

import re
from collections import defaultdict
from itertools import chain
from typing import Any

import msgspec

from headwater.cli.events import payload_fields
from headwater.cli.markdown import code, escaped, table
from headwater.cli.output import cell_text, pluralize
from headwater.core.durations import format_duration
from headwater.model.declarations import FeatureListing, ParameterListing, StoreListing
from headwater.model.windows import FamilyListing

_BEGINNING = """\
# Declarations

<!-- Written by `headwater docs`. Change the features file instead, and run it again. -->"""
# Shown elsewhere, or of no use to a reader.
_LEFT_OUT = (
    *("name", "description", "entity", "needs", "members", "plan", "span_us", "hop_us"),
    *("schedule", "next_runs"),
)
_ENTITY = "entity:"
_USUAL = {"freshness": "age", "separator": "\n\n"}
_PROSE = frozenset(("unit", "owner", "tags", "mode", "recomputed"))
_AT_START = re.compile(r"^(?=[=+]|-+\s*$)", re.MULTILINE)
_NOT_IN_ANCHORS = re.compile(r"[^A-Za-z0-9_-]")


def recomputed(feature: FeatureListing) -> str:
    """Return when a feature is recomputed, in words."""
    if feature.triggers:
        windows = feature.windows and pluralize(len(feature.windows.members), "window")
        return f"on {', '.join(feature.triggers)}" + (f"; {windows}" if windows else "")
    if feature.schedule:
        return feature.schedule
    if feature.window is not None:
        return f"from {feature.window.family}, when read; covers {feature.window.covers}"
    if feature.template:
        return f"from {', '.join(feature.needs)}, when read"
    return "only when it is set" if feature.mode == "stored" else "when read"


def facts_of(listing: msgspec.Struct) -> dict[str, str]:
    """Return the options of a declaration as text, by name, except absent ones."""
    facts: dict[str, str] = {}
    for name in listing.__struct_fields__:
        value = getattr(listing, name)
        if name in _LEFT_OUT or value is None or value == _USUAL.get(name):
            continue
        if isinstance(value, msgspec.Struct):
            facts |= facts_of(value)
        elif name == "default":
            facts[name] = cell_text(value)
        elif value is not False and value not in ("", (), [], {}):
            facts[name.removesuffix("_ms").replace("_", " ")] = _fact(name, value)
    return facts


def _fact(name: str, value: Any) -> str:
    if name.endswith("_ms"):
        return format_duration(value)
    match value:
        case True:
            return "yes"
        case list() | tuple():
            return ", ".join(_fact(name, item) for item in value)
        case ParameterListing():
            return parameter_text(value)
        case msgspec.Struct():  # a window
            return str(msgspec.structs.astuple(value)[0])
        case dict() if name == "belongs_to":
            return ", ".join(f"{owner} by {field}" for field, owner in value.items())
    if name == "schema":
        return payload_fields(value)
    return " ".join(value.split()) if name == "sql" else cell_text(value)


def parameter_text(parameter: ParameterListing) -> str:
    """Return a parameter as Python declares it."""
    typed = f"{parameter.name}: {parameter.type}" if parameter.type else parameter.name
    return typed if parameter.required else f"{typed} = {cell_text(parameter.default)}"


class DeclarationsPage:
    """A page of all declarations; the same ones give the same text, so that it can be compared."""

    def __init__(self, listing: StoreListing) -> None:
        self._listing = listing
        self._graph = listing.graph.folded()
        self._needs: defaultdict[str, list[str]] = defaultdict(list)
        self._needed_by: defaultdict[str, list[str]] = defaultdict(list)
        self._owns: defaultdict[str, list[str]] = defaultdict(list)
        for edge in self._graph.edges:
            if edge.source.startswith(_ENTITY) and edge.target.startswith(_ENTITY):
                self._owns[edge.target].append(_link(edge.source))
                continue
            self._needs[edge.target].append(_link(edge.source))
            self._needed_by[edge.source].append(_link(edge.target))

    def text(self) -> str:
        """Return the page in Markdown."""
        listing, section = self._listing, self._section
        sections = {
            "Entities": [section(f"{_ENTITY}{e.name}", e, e.description) for e in listing.entities],
            "Events": [section(f"event:{e.name}", e, e.description) for e in listing.events],
            **{f"Features of {e.name}": self._features(e.name) for e in listing.entities},
            "Sources": [section(node.id) for node in self._graph.nodes if node.kind == "source"],
            "Indexes": [section(f"index:{i.name}", i) for i in listing.indexes],
            "Retrievers": [
                section(f"retriever:{r.name}", r, r.description) for r in listing.retrievers
            ],
            "Contexts": [section(f"context:{c.name}", c, c.description) for c in listing.contexts],
            "Graph": [[f"```mermaid\n{self._graph.to_mermaid()}\n```"]] * bool(self._graph.nodes),
        }
        written = {title: parts for title, parts in sections.items() if parts}
        contents = "\n".join(f"- [{title}](#{_anchor(title)})" for title in written)
        parts = [_BEGINNING, contents or "Nothing is declared."]
        for title, of_kind in written.items():
            parts += [_heading(2, title, title), *chain.from_iterable(of_kind)]
        return "\n\n".join(parts) + "\n"

    def _features(self, entity: str) -> list[list[str]]:
        """Return a table of the features of an entity, and a section for each."""
        features = [f for f in self._listing.features if f.entity == entity and f.window is None]
        columns = ("feature", "type", "unit", "recomputed", "owner", "tags", "description")
        rows = [
            (
                _link(f"feature:{feature.name}"),
                code(feature.type),
                *map(escaped, (feature.unit, recomputed(feature), feature.owner)),
                *map(escaped, (", ".join(feature.tags), feature.description.partition("\n")[0])),
            )
            for feature in features
        ]
        sections = [self._section(f"feature:{f.name}", f, f.description) for f in features]
        return [[table(columns, rows)], *sections] if rows else []

    def _section(
        self, node: str, listing: msgspec.Struct | None = None, description: str = ""
    ) -> list[str]:
        """Return the blocks about a declaration, an event type or a source."""
        facts = {} if listing is None else facts_of(listing)
        # A list of a description, whose items begin with a hyphen, ends before these.
        lines = [
            f"* {name}: {escaped(text) if name in _PROSE else code(text)}"
            for name, text in facts.items()
        ]
        for name, links in (
            ("owns", self._owns[node]),
            ("needs", self._needs[node]),
            ("needed by", self._needed_by[node]),
        ):
            lines += [f"* {name}: {', '.join(links)}"] if links else []
        members = []
        if isinstance(listing, FeatureListing) and listing.windows is not None:
            members = [self._members(listing.windows)]
        blocks = (_heading(3, _name(node), node), _prose(description), "\n".join(lines), *members)
        return [block for block in blocks if block]

    def _members(self, family: FamilyListing) -> str:
        """Return a table of the features of a family: an aggregate in each row."""
        step = len(family.aggregates)
        rows = [
            [escaped(aggregate), *map(code, family.members[place::step])]
            for place, aggregate in enumerate(family.aggregates)
        ]
        return table(["", *(window.window for window in family.windows)], rows)


def _name(node: str) -> str:
    return node.partition(":")[2]


def _link(node: str) -> str:
    return f"[{escaped(_name(node))}](#{_anchor(node)})"


def _anchor(text: str) -> str:
    """Return the id of a heading, which no other heading has."""
    hyphened = re.sub("[ :]", "-", text, count=2)
    return _NOT_IN_ANCHORS.sub(lambda other: f".{ord(other[0]):x}.", hyphened)


def _heading(level: int, title: str, anchored: str) -> str:
    return f'<a id="{_anchor(anchored)}"></a>\n\n{"#" * level} {escaped(title)}'


def _prose(text: str) -> str:
    """Return text with its paragraphs and lists, in which nothing else is Markdown."""
    return _AT_START.sub(r"\\", "\n".join(escaped(line.strip()) for line in text.splitlines()))
