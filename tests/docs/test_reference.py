"""The reference is complete, and lists nothing that does not exist."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from dev.reference import pages
from dev.reference.metrics import all_metrics
from dev.reference.tables import IncompleteReferenceError
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
from headwater.http.app import create_app
from headwater.http.routing.openapi import document
from headwater.settings.schema import SETTINGS, Settings
from tests.docs.pages import DOCS, ROOT, blocks, quoted, rows, sections

REFERENCE = DOCS / "reference"
_NAME = re.compile(r"`([\w-]+)`")


def _first_words(page: str, section: str) -> list[str]:
    """Return the names in the first column of a section's tables."""
    return [quoted(row[0]) for row in rows(sections(REFERENCE / page)[section])]


def test_generated_tables_are_those_of_the_code() -> None:
    written = pages.generate().items()
    outdated = [page.name for page, text in written if page.read_text(encoding="utf-8") != text]
    assert outdated == [], "run `make reference`"


def test_a_subject_without_a_place_in_the_reference_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    with pytest.raises(IncompleteReferenceError, match="0 times <!-- generated: commands"):
        pages.generate()
    (tmp_path / "cli.md").write_text("<!-- generated: options headwater fly -->\n<!-- end -->\n")
    with pytest.raises(IncompleteReferenceError, match="headwater fly --> names something that"):
        pages.generate()


def test_every_extra_is_described_where_installation_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = [
        ([*_NAME.findall(names)], [*_NAME.findall(meaning)])
        for names, meaning in rows(sections(DOCS / "how-to" / "running.md")["Extras"])
    ]
    assert sorted(name for names, _ in listed for name in names) == sorted(extras)
    [together] = extras["all"]
    assert (["all"], together.removeprefix("headwater[").rstrip("]").split(",")) in listed


def test_no_page_names_a_variable_that_no_setting_has() -> None:
    known = {name for s in SETTINGS.values() for name in (s.variable, s.secret_variable)}
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        named = set(re.findall(r"HEADWATER_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8")))
        assert {name for name in named if not name.startswith("HEADWATER_TEST")} <= known, page


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    groups = {path.partition(".")[0] for path in SETTINGS if "." in path}
    pattern = re.compile(rf"`((?:{'|'.join(groups)})\.[a-z_]+)`")
    for page in DOCS.rglob("*.md"):
        named = set(pattern.findall(page.read_text(encoding="utf-8"))) - {"worker.stop", "bus.list"}
        assert named <= set(SETTINGS), page


def test_every_route_has_a_section_that_names_its_parameters_and_fields() -> None:
    described = document(create_app(FeatureStore(settings=Settings())).typed_routes)
    routes = {
        f"{method.upper()} {path}": operation
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    }
    listed = {quoted(title): text for title, text in sections(REFERENCE / "http.md").items()}
    assert {title for title in listed if re.match(r"[A-Z]+ /", title)} == routes.keys()
    for title, operation in routes.items():
        names = _inputs(operation, described["components"]["schemas"])
        assert [name for name in names if not re.search(rf"`{name}\b", listed[title])] == [], title


def _inputs(operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    for parameter in operation["parameters"]:
        if parameter["in"] == "query":
            yield parameter["name"]
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        reference = content["schema"].get("$ref", "")
        yield from schemas.get(reference.rpartition("/")[2], {}).get("properties", ())


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
    groups: dict[str, object] = {"": store, "bus.": store.bus, "records.": store.records}
    groups |= {"dead_letters.": store.dead_letters, "admin.": store.admin}
    groups |= {"indexes.": store.indexes, "history.": store.history}
    for group, verbs in groups.items():
        for name in dir(verbs) if group else dir(FeatureStore):
            assert name.startswith("_") or f"store.{group}{name}" in text, f"{group}{name}"


def test_no_page_names_a_metric_that_does_not_exist() -> None:
    known = {metric.name for metric in all_metrics()}
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"headwater_[a-z_]+_(?:total|seconds)", text)) <= known, page


def test_json_and_toml_blocks_are_valid() -> None:
    for page in DOCS.rglob("*.md"):
        for block in blocks(page):
            if block.language == "json":
                msgspec.json.decode(block.text)
            elif block.language == "toml":
                msgspec.toml.decode(block.text)
