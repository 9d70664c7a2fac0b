"""Formats in templates: what they write, what is refused, and that nothing else is reachable."""

from __future__ import annotations

import decimal
import locale
import re
import time
import tracemalloc
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.contexts.record_builder import recorded_value
from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.core.formats import WIDEST, as_text
from headwater.core.templates import Template, parse_template
from headwater.errors import FormatError, TemplateError
from tests.core.test_templates import NAMES, escaped

MOMENT = datetime(2026, 3, 7, 15, 4, 9, 1200, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))


class Size(IntEnum):
    LARGE = 3


class Plan(Enum):
    GOLD = "gold"


def written(value: object, spec: str) -> str:
    return parse_template(f"{{x:{spec}}}").render({"x": value})


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (0.4237, ".0%", "42%"),
        (Decimal("0.425"), ".1%", "42.5%"),
        (1234567.891, ",.2f", "1,234,567.89"),
        (Decimal("1234567.895"), ",.2f", "1,234,567.90"),
        (Decimal("0.125"), ".2f", "0.12"),
        (1234567, ",", "1,234,567"),
        (1234567, "_d", "1_234_567"),
        (7, "03", "007"),
        (7, ".1f", "7.0"),
        (-7, "+d", "-7"),
        (12345.678, ".3g", "1.23e+04"),
        (True, "d", "1"),
        (True, ">6", "  True"),
        (Size.LARGE, "02d", "03"),
        (np.float64(2.345), ".1f", "2.3"),
        (np.int32(5), "03", "005"),
        ("gold", ">6", "  gold"),
        ("gold", "*^8", "**gold**"),
        ("gold", ".2", "go"),
        ("gold", "6.3s", "gol   "),
        (Plan.GOLD, ".2", "go"),
        (3.5, "6", "   3.5"),
        (3.5, "<6s", "3.5   "),
        (UUID(int=1), ".8", "00000000"),
        ([1, 2], ">6", " [1,2]"),
        (timedelta(days=1), ">5", "P1D".rjust(5)),
        (MOMENT, "%d %b %Y", "07 Mar 2026"),
        (MOMENT, "%-d %B %y, %A (%a)", "7 March 26, Saturday (Sat)"),
        (MOMENT, "%H:%M:%S.%f %z", "15:04:09.001200 -0330"),
        (MOMENT, "%-I:%M %p %Z", "3:04 PM UTC-03:30"),
        (MOMENT, "%j of %Y: 100%%", "066 of 2026: 100%"),
        (MOMENT.replace(hour=0), "%I %p", "12 AM"),
        (datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")), "%H %Z", "00 UTC+02:00"),
        (datetime(33, 1, 1, tzinfo=UTC), "%Y %Z", "0033 UTC"),
        (date(1999, 12, 31), "%d.%m.%Y", "31.12.1999"),
        (MOMENT, ".10", "2026-03-07"),
    ],
)
def test_values_are_written_by_their_format(value: object, spec: str, text: str) -> None:
    assert written(value, spec) == text
    # A record holds the value in a form of its own, and gives the same text.
    recorded = from_tagged(to_tagged(recorded_value(value)))
    assert written(recorded, spec) == text


def test_a_fallback_stands_for_a_missing_value_and_only_for_that() -> None:
    template = parse_template("{name|a fallback: no|yes}")
    assert template.render({"name": None}) == "a fallback: no|yes"
    assert template.render({"name": ""}) == ""
    assert parse_template("{x:,.2f|unknown}").render({"x": None}) == "unknown"
    assert parse_template("{x:,.2f|unknown}").render({"x": 0}) == "0.00"
    assert parse_template("{x:,.2f}").render({"x": None}) == ""
    assert parse_template("{x|}{y}").needed == ("y",)


def test_one_reference_keeps_its_value_and_its_fallback() -> None:
    assert parse_template("{x}").value({"x": 3}) == 3
    assert parse_template("{x|none}").value({"x": 3}) == 3
    assert parse_template("{x|none}").value({"x": None}) == "none"
    assert parse_template("{x}").value({"x": None}) is None
    assert parse_template("{x:03}").value({"x": 3}) == "003"


@pytest.mark.parametrize(
    ("spec", "value", "type_name"),
    [
        (".2f", "gold", "str"),
        (",", "gold", "str"),
        (".2f", [1], "list"),
        ("d", 3.5, "float"),
        (".2", 3, "int"),
        (".2f", MOMENT, "datetime"),
        ("%Y", 3, "int"),
        ("%Y", "2026-01-01", "str"),
        ("%H", date(2026, 1, 1), "date"),
        ("=10", "gold", "str"),
        (".2f", 10**400, "int"),
        (",f", Decimal("1e9999999"), "Decimal"),
        ("f", Decimal("1e-9999999"), "Decimal"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_all_but_the_value(
    spec: str, value: object, type_name: str
) -> None:
    with pytest.raises(FormatError) as caught:
        written(value, spec)
    message = str(caught.value)
    assert f"{{x:{spec}}}" in message
    assert f"which is {type_name}" in message
    assert "gold" not in message
    assert (caught.value.name, caught.value.spec) == ("x", spec)


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("{x:1000000000}", "its width is above 1000"),
        ("{x:.1001f}", "its precision is above 1000"),
        ("{x:" + "9" * 10_000 + "}", "its width"),
        ("{x:%Q}", "directives of dates are %Y"),
        ("{x:%d%}", "directives of dates"),
        ("{x:n}", "formats are such as"),
        ("{x:c}", "formats are such as"),
        ("{x:#x}", "formats are such as"),
        ("{x:.2d}", "precision not allowed"),
        ("{x:,s}", "cannot specify ','"),
        ("{x: f }", "formats are such as"),
        ("{x:٣}", "formats are such as"),
        ("{x!r:>10}", "use a plain name"),
        ("{x.y:>10}", "use a plain name"),
        ("{x[0]|none}", "use a plain name"),
        ("{x:{y}}", "lone"),
        ("{x|{y}}", "lone"),
    ],
)
def test_a_format_that_can_never_be_used_is_refused_where_it_is_declared(
    reference: str, problem: str
) -> None:
    with pytest.raises(TemplateError, match=re.escape(problem)):
        parse_template(reference)


def test_neither_the_locale_nor_the_decimal_context_changes_a_text() -> None:
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
        with decimal.localcontext(prec=2, rounding=decimal.ROUND_UP):
            assert written(Decimal("123.451"), ",.2f") == "123.45"
            assert written(MOMENT, "%b") == "Mar"
    finally:
        locale.setlocale(locale.LC_ALL, before)


def test_templates_without_formats_are_equal_to_those_of_earlier_versions() -> None:
    assert parse_template("Hello {name}") == Template(("Hello ", ""), ("name",))
    form = to_tagged(parse_template("Hello {name}"))
    assert form == {"literals": {"$tuple": ["Hello ", ""]}, "references": {"$tuple": ["name"]}}


SPECS = st.one_of(
    st.sampled_from([",.2f", ".0%", "+d", "e", "g", ">10", "%d %b %Y", "%H:%M", "", ".3", "=+9"]),
    st.from_regex(r"[*0]?[<>^][0-9]{0,3}(\.[0-9])?", fullmatch=True),
)
FALLBACKS = st.none() | st.text(st.characters(exclude_characters="{}"))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(),
    st.dates(),
    st.datetimes(timezones=st.timezones() | st.just(UTC)),
    st.timedeltas(),
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """The text of a template with references of every form."""
    text = escaped(draw(st.text("a{}|: %")))
    for _ in range(draw(st.integers(0, 5))):
        name, spec, fallback = draw(NAMES), draw(st.none() | SPECS), draw(FALLBACKS)
        text += f"{{{name}" + ("" if spec is None else f":{spec}")
        text += "}" if fallback is None else f"|{fallback}}}"
        text += escaped(draw(st.text("a{}|: %")))
    return text


@given(sources())
def test_the_text_of_a_template_is_the_text_it_was_parsed_from(source: str) -> None:
    template = parse_template(source)
    assert template.text == source
    assert parse_template(template.text) == template


@given(sources(), st.data())
def test_places_cut_the_texts_of_the_references_out_of_the_rendered_text(
    source: str, data: st.DataObject
) -> None:
    template = parse_template(source)
    values = {name: data.draw(VALUES) for name in template.references}
    try:
        text = template.render(values)
    except FormatError:
        return
    recorded = {name: from_tagged(to_tagged(recorded_value(v))) for name, v in values.items()}
    assert template.render(recorded) == text
    end, literals = 0, []
    for reference, start, stop in template.places(recorded):
        literals.append(text[end:start])
        end = stop
        assert reference in values
    assert (*literals, text[end:]) == template.literals


class Trap:
    """A value that notices when something of it is reached."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith(("__", "model_")):  # models of pydantic are recognised by these
            raise AssertionError(f"{name} was reached")
        return super().__getattribute__(name)

    def __getitem__(self, key: object) -> Any:
        raise AssertionError(f"[{key!r}] was reached")

    def __format__(self, spec: str) -> str:
        raise AssertionError(f"__format__({spec!r}) was reached")


@given(st.text(max_size=30) | st.text("x{}[].!:|%0_rfd", max_size=30))
def test_nothing_of_a_value_is_reachable_through_a_template(inside: str) -> None:
    try:
        template = parse_template(f"{{x{inside}}}")
    except TemplateError:
        return
    with pytest.raises((TypeError, ValueError, KeyError, FormatError)):
        template.render({"x": Trap()})


@given(
    st.text("0123456789.,_<>=^+- %fFeEgGds", max_size=12),
    st.sampled_from(
        [10**18, -1e308, 5e-324, Decimal("9e9999999"), Decimal("1e-9999999"), "long" * 9, MOMENT]
    ),
)
def test_any_format_is_bounded_in_time_and_memory(spec: str, value: object) -> None:
    began = time.thread_time()
    tracemalloc.start()
    try:
        text = written(value, spec)
    except TemplateError:
        text = ""
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(text) <= 4 * WIDEST
    assert peak < 2_000_000
    assert time.thread_time() - began < 0.5


def test_sets_are_written_in_the_same_order_by_every_process() -> None:
    names = {"delta", "alpha", "gamma", "beta"}
    assert as_text(names) == '["alpha","beta","delta","gamma"]'
    assert as_text({"z": [frozenset(names)]}) == '{"z":[["alpha","beta","delta","gamma"]]}'
    assert as_text({"z": 1, "a": [2]}) == '{"z":1,"a":[2]}'
