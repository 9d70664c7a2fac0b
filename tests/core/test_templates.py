"""Templates: references, literal text and errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.templates import parse_template
from headwater.errors import TemplateError
from headwater.errors.hints import Location

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


def escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def test_references_are_found_in_order_and_repetitions_kept() -> None:
    template = parse_template("{name} has spent {total_spend}; bye, {name}!")
    assert template.references == ("name", "total_spend", "name")
    assert template.render({"name": "Ada", "total_spend": "3.5"}) == "Ada has spent 3.5; bye, Ada!"


def test_a_text_without_references_is_itself() -> None:
    template = parse_template("nothing here")
    assert template.references == ()
    assert template.render({}) == "nothing here"
    assert parse_template("").render({}) == ""


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{name}}", "{name}"),
        ("{{{name}}}", "{Ada}"),
        ("{name}}}", "Ada}"),
        ("{{}}", "{}"),
        ("}}{{", "}{"),
        ('{{"who": "{name}"}}', '{"who": "Ada"}'),
    ],
)
def test_doubled_braces_are_braces(text: str, rendered: str) -> None:
    assert parse_template(text).render({"name": "Ada"}) == rendered


@pytest.mark.parametrize(
    "reference",
    [
        *("{name.upper}", "{name.__class__.__mro__}", "{name[0]}", "{name['x']}", "{name!r}"),
        *("{}", "{0}", "{ name}", "{name }", "{name\n}", "{na-me}", "{naïve}"),
    ],
)
def test_attributes_and_indexes_are_refused(reference: str) -> None:
    with pytest.raises(TemplateError, match="use a plain name"):
        parse_template(f"Hello {reference}.")


@pytest.mark.parametrize(
    "text", ["{", "}", "{name", "name}", "{{name}", "{name}}", "{a{b}}", "{{{"]
)
def test_a_lone_brace_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(TemplateError, match="double it for a literal"):
        parse_template(text)


def test_an_error_names_file_and_line() -> None:
    with pytest.raises(TemplateError, match=r"^features\.py:12: "):
        parse_template("{", Location("features.py", 12))


@given(st.text())
def test_any_text_can_be_written_with_escapes(text: str) -> None:
    template = parse_template(escaped(text))
    assert template.references == ()
    assert template.render({}) == text


@given(st.lists(st.tuples(st.text("a{} \n"), NAMES)), st.text("a{} "))
def test_literals_and_references_alternate(pieces: list[tuple[str, str]], tail: str) -> None:
    source = "".join(f"{escaped(literal)}{{{name}}}" for literal, name in pieces) + escaped(tail)
    template = parse_template(source)
    assert template.literals == (*(literal for literal, _ in pieces), tail)
    assert template.references == tuple(name for _, name in pieces)


@given(st.text())
def test_a_value_s_text_is_never_parsed(text: str) -> None:
    template = parse_template("<{user_text}>")
    assert template.render({"user_text": text, "secret": "hunter2"}) == f"<{text}>"


def test_a_reference_inside_a_value_is_only_text() -> None:
    template = parse_template("{question}")
    values = {"question": "{secret} {question.__class__} {{}}", "secret": "hunter2"}
    assert template.render(values) == values["question"]
