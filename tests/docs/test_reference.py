"""The reference is complete, and lists nothing that does not exist."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest
from typer.core import TyperGroup
from typer.main import get_command

import headwater
from dev import problems_page
from headwater import (
    Chunk,
    Context,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    feature,
    retriever,
)
from headwater.cli.app import app
from headwater.http.app import create_app
from headwater.settings.schema import SETTINGS, Settings
from tests.docs.pages import DOCS, ROOT, blocks, quoted, rows, sections

REFERENCE = DOCS / "reference"


def _first_words(page: str, section: str) -> list[str]:
    """Return the names in the first column of a section's tables."""
    return [quoted(row[0]) for row in rows(sections(REFERENCE / page)[section])]


def test_every_setting_is_listed_with_variable_default_and_meaning() -> None:
    listed = [row for text in sections(REFERENCE / "settings.md").values() for row in rows(text)]
    defaults = Settings()
    assert {quoted(row[0]): [quoted(row[1]), quoted(row[2]), row[3]] for row in listed} == {
        setting.path: [
            setting.variable or "–",
            _written(setting.shown(setting.of(defaults))) or "–",
            setting.description,
        ]
        for setting in SETTINGS.values()
    }


def _written(value: object) -> str:
    if not value and isinstance(value, str | dict):
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def test_no_page_names_a_variable_that_no_setting_has() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        named = set(re.findall(r"HEADWATER_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8")))
        assert {name for name in named if not name.startswith("HEADWATER_TEST")} <= known, page


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    groups = {path.partition(".")[0] for path in SETTINGS if "." in path}
    pattern = re.compile(rf"`((?:{'|'.join(groups)})\.[a-z_]+)`")
    for page in DOCS.rglob("*.md"):
        named = set(pattern.findall(page.read_text(encoding="utf-8"))) - {"worker.stop"}
        assert named <= set(SETTINGS), page


def _verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        yield name, command
        return
    for verb in command.commands:
        context = command.make_context("headwater", [], resilient_parsing=True)
        _, below, _ = command.resolve_command(context, [verb])
        yield from _verbs(below, f"{name} {verb}")


# The options of every verb; the beginning of the page describes them.
SERVER_OPTIONS = {"url", "key"}

VERBS = dict(_verbs(get_command(app), "headwater"))


def test_every_verb_has_a_section() -> None:
    headings = [quoted(heading) for heading in sections(REFERENCE / "cli.md")]
    assert sorted(h for h in headings if h.startswith("headwater ")) == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_and_option_of_a_verb_is_listed(verb: str) -> None:
    listed = rows(sections(REFERENCE / "cli.md")[f"`{verb}`"])
    words = {word for row in listed for word in re.findall(r"`([^`]+)`", row[0])}
    assert words == set(_words(VERBS[verb]))


def _words(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield (parameter.metavar or parameter.name.upper()).removesuffix("...")
        elif not parameter.hidden and parameter.name not in SERVER_OPTIONS:
            yield from (*parameter.opts, *parameter.secondary_opts)


def test_every_route_has_a_section() -> None:
    app = create_app(FeatureStore(settings=Settings()))
    routes = {f"{route.method} {route.path}" for route in app.typed_routes}
    headings = {quoted(heading) for heading in sections(REFERENCE / "http.md")}
    assert {h for h in headings if re.match(r"[A-Z]+ /", h)} == routes


def test_the_page_of_problem_types_is_that_of_the_table() -> None:
    text = problems_page.PAGE.read_text(encoding="utf-8")
    assert text == problems_page.page(), "run `make reference`"


def test_every_option_of_a_feature_is_listed() -> None:
    parameters = inspect.signature(feature).parameters.values()
    options = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    assert sorted(_first_words("declarations.md", "Options")) == sorted(options)


@pytest.mark.parametrize("decorator", [context, retriever, Index])
def test_every_option_of_a_context_a_retriever_and_an_index_is_listed(decorator: Any) -> None:
    parameters = inspect.signature(decorator).parameters.values()
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    options = [p.name for p in parameters if p.kind not in variable]
    article = "an" if decorator is Index else "a"
    section = f"Options of {article} {decorator.__name__}"
    assert sorted(_first_words("declarations.md", section)) == sorted(options)


@pytest.mark.parametrize(
    ("section", "kind"),
    [("Items", ContextItem), ("Chunks", Chunk), ("What a context gives", Context)],
)
def test_every_field_of_items_chunks_and_contexts_is_listed(
    section: str, kind: type[msgspec.Struct]
) -> None:
    fields = [field.name for field in msgspec.structs.fields(kind) if field.name != "parsed"]
    assert _first_words("declarations.md", section) == fields


def test_every_field_of_an_event_is_listed() -> None:
    fields = [field.name for field in msgspec.structs.fields(ServiceEvent)]
    assert _first_words("declarations.md", "Events") == fields


def test_every_public_name_and_every_verb_of_the_store_is_documented() -> None:
    text = (REFERENCE / "declarations.md").read_text(encoding="utf-8")
    for name in headwater.__all__:
        assert re.search(rf"\b{name}\b", text), name
    store = FeatureStore(settings=Settings())
    groups = {"": store, "bus.": store.bus, "records.": store.records}
    groups |= {"dead_letters.": store.dead_letters, "admin.": store.admin}
    groups |= {"indexes.": store.indexes, "history.": store.history}
    for group, verbs in groups.items():
        for name in dir(verbs) if group else dir(FeatureStore):
            assert name.startswith("_") or f"store.{group}{name}" in text, f"{group}{name}"


class Metric(NamedTuple):
    """A metric, from the source or from the reference."""

    name: str
    kind: str
    labels: tuple[str, ...]


@cache
def _nodes() -> list[ast.Call | ast.ClassDef]:
    """Return all calls and classes of the source."""
    return [
        node
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.ClassDef)
    ]


def _calls() -> Iterator[ast.Call]:
    yield from (node for node in _nodes() if isinstance(node, ast.Call))


def _kinds_of_records() -> dict[str, set[str]]:
    """Return the classes of frequent log records with their fields."""
    return {
        name: {line.target.id for line in body if isinstance(line, ast.AnnAssign)}  # type: ignore[union-attr]
        for node in _nodes()
        for name, body in _record_class(node)
    }


def _record_class(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    match node:
        case ast.ClassDef(name, [ast.Name("LogRecord" | "_Processed")], _, body):
            yield name, body


def test_every_metric_is_listed_with_its_labels() -> None:
    declared = set()
    for call in _calls():
        match call:
            case ast.Call(
                func=ast.Name(
                    "Counter" | "TallyCounter" | "Histogram" | "Gauge" | "BatchHistogram" as kind
                ),
                args=[ast.Constant(str(name)), _, *labels],
            ):
                if kind == "BatchHistogram":  # our own histogram, without labels
                    declared.add(Metric(name, "histogram", ()))
                    continue
                given = tuple(ast.literal_eval(labels[0])) if labels else ()
                declared.add(Metric(name, kind.removeprefix("Tally").lower(), given))
    listed = {
        Metric(quoted(row[0]), row[1], tuple(re.findall(r"`(\w+)`", row[2])))
        for row in rows(sections(REFERENCE / "metrics.md")["Metrics"])
    }
    assert declared == listed


def test_no_page_names_a_metric_that_does_not_exist() -> None:
    known = {quoted(row[0]) for row in rows(sections(REFERENCE / "metrics.md")["Metrics"])}
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"headwater_[a-z_]+_(?:total|seconds)", text)) <= known, page


def test_every_log_record_is_listed_with_its_level_and_fields() -> None:
    said: dict[tuple[str, str], set[str]] = {}
    kinds = _kinds_of_records()
    for call in _calls():
        match call:
            case ast.Call(
                func=ast.Attribute(ast.Name("log" | "logger"), level),
                args=[ast.Constant(str(name)), *_],
            ) if level != "configure":
                fields = {keyword.arg for keyword in call.keywords if keyword.arg}
                level = "warning" if level == "advise" else level
                said.setdefault((name, level), set()).update(fields)
            case ast.Call(
                func=ast.Attribute(_, "report"),
                args=[ast.Constant(str(level)), ast.Constant(str(name)), *_],
            ):
                said[name, level] = {"error"}
            case ast.Call(
                func=ast.Name(kind),
                args=[_, ast.Constant(str(level)), ast.Constant(str(name)), *_],
            ) if kind in kinds:
                said[name, level] = kinds[kind]
            case ast.Call(func=ast.Attribute(_, "_retry"), args=[_, ast.Constant(str(name)), *_]):
                said[name, "error"] = {"error"}
            case ast.Call(func=ast.Name("PartitionTasks"), args=[_, ast.Constant(str(name)), *_]):
                said[name, "warning"] = {"partition", "error"}
    listed = {
        (quoted(row[0]), row[1]): set(re.findall(r"`(\w+)`", row[2]))
        for row in rows(sections(REFERENCE / "metrics.md")["Log records"])
    }
    assert listed.keys() == said.keys()
    assert {key: fields - listed[key] for key, fields in said.items() if fields - listed[key]} == {}


def test_every_conformance_suite_is_documented() -> None:
    # Read and not imported: pytest must be the first to load the suites, to rewrite their asserts.
    suites = ROOT / "src" / "headwater" / "testing" / "conformance" / "__init__.py"
    names = set(re.findall(r"\w+Conformance", suites.read_text(encoding="utf-8")))
    listed = sections(DOCS / "how-to" / "testing.md")["For authors of backends"]
    assert {quoted(row[0]) for row in rows(listed)} == names


def test_json_and_toml_blocks_are_valid() -> None:
    for page in DOCS.rglob("*.md"):
        for block in blocks(page):
            if block.language == "json":
                msgspec.json.decode(block.text)
            elif block.language == "toml":
                msgspec.toml.decode(block.text)
