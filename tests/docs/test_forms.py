"""The forms of issues have the fields that GitHub documents, and name commands that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.docs.test_commands import parse

FOLDER = ROOT / ".github"
FORMS = [file for file in FOLDER.glob("ISSUE_TEMPLATE/*.yml") if file.name != "config.yml"]
TEXTS = [*FORMS, FOLDER / "PULL_REQUEST_TEMPLATE.md", ROOT / "SECURITY.md"]
_TEXT = {"label", "description", "placeholder", "value"}
ATTRIBUTES = {
    "markdown": {"value"},
    "input": _TEXT,
    "textarea": _TEXT | {"render"},
    "dropdown": {"label", "description", "multiple", "options", "default"},
    "checkboxes": {"label", "description", "options"},
}


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_a_form_has_documented_fields(file: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    assert form.keys() <= {"name", "description", "body", "title", "labels", "assignees"}
    asked = [element for element in form["body"] if element["type"] != "markdown"]
    for element in form["body"]:
        assert element.keys() <= {"type", "attributes", "id", "validations"}
        assert element["attributes"].keys() <= ATTRIBUTES[element["type"]]
        assert element.get("validations", {}).keys() <= {"required"}
    assert all(re.fullmatch(r"[\w-]+", element["id"]) for element in asked)
    for names in ([each["id"] for each in asked], [each["attributes"]["label"] for each in asked]):
        assert names
        assert len({*names}) == len(names)


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.name)
def test_a_form_names_commands_that_exist(file: Path) -> None:
    for command in re.findall(r"`headwater ([^`]+)`", file.read_text(encoding="utf-8")):
        parse(command.split())
