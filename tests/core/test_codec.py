"""Encoding: a value comes back in its annotated type, or is refused by its feature's name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.codec import Codec, UnstorableError, encode_exact
from headwater.errors import FeatureValueError

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
# JSON writes an offset in whole minutes.
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(timezones=ZONES)
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@dataclass
class Point:
    x: int
    y: float


class Order(msgspec.Struct):
    sku: str
    at: datetime
    points: list[Point] = []


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(str, "a\0b"), (dict[str, int], {"a\0": 1}), (list[str], ["\\\0"]), (Any, {"a": ["\0"]})],
)
def test_a_text_that_postgres_cannot_hold_is_refused(annotation: Any, value: object) -> None:
    assert_refused(annotation, value, "U+0000")


@pytest.mark.parametrize("text", [r"\u0000", r"\\u0000", "\x01", "\ufffd"])
def test_a_text_that_looks_like_it_is_stored(text: str) -> None:
    assert there_and_back(str, text) == text


def there_and_back(annotation: Any, value: object) -> Any:
    codec = Codec("f", annotation)
    return codec.decode(codec.encode(value))


def assert_refused(annotation: Any, value: object, reason: str) -> None:
    with pytest.raises(FeatureValueError) as caught:
        Codec("total_spend", annotation).encode(value)
    message = str(caught.value)
    assert "feature 'total_spend' cannot store" in message
    assert reason in message


@given(
    st.one_of(
        st.tuples(st.just(int), INT64),
        st.tuples(st.just(float), FLOATS),
        st.tuples(st.just(bool), st.booleans()),
        st.tuples(st.just(str), TEXTS),
        st.tuples(st.just(datetime), MOMENTS),
        st.tuples(st.just(date), st.dates()),
        st.tuples(st.just(timedelta), st.timedeltas(timedelta(days=-9_999), timedelta(days=9_999))),
        st.tuples(st.just(bytes), st.binary()),
        st.tuples(st.just(UUID), st.uuids()),
        st.tuples(st.just(Decimal), st.decimals(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just(list[float]), st.lists(FLOATS)),
        st.tuples(st.just(set[int]), st.sets(INT64)),
        st.tuples(st.just(tuple[int, str]), st.tuples(INT64, TEXTS)),
        st.tuples(st.just(dict[int, bool]), st.dictionaries(INT64, st.booleans())),
        st.tuples(st.just(int | None), st.none() | INT64),
        st.tuples(st.just(Point), st.builds(Point, INT64, FLOATS)),
        st.tuples(
            st.just(Order),
            st.builds(Order, TEXTS, MOMENTS, st.lists(st.builds(Point, INT64, FLOATS), max_size=3)),
        ),
        st.tuples(st.just(Colour), st.just(Colour.RED)),
        st.tuples(st.just(Any), JSON),
    )
)
def test_a_value_comes_back_equal_and_in_its_annotated_type(case: tuple[Any, object]) -> None:
    annotation, value = case
    back = there_and_back(annotation, value)
    assert back == value
    assert type(back) is type(value)


@given(JSON)
def test_a_decoded_value_encodes_to_the_same_text(value: object) -> None:
    codec = Codec("f", Any)
    raw = codec.encode(value)
    assert codec.encode(codec.decode(raw)) == raw
    assert encode_exact(value, msgspec.json.decode) == raw


@pytest.mark.parametrize(
    ("annotation", "value", "back"),
    [
        (int, np.int64(5), 5),
        (int, np.uint8(5), 5),
        (float, np.float64(1.5), 1.5),
        (float, np.float32(0.5), 0.5),
        (bool, np.bool_(1), True),
        (str, np.str_("x"), "x"),
        (list[float], np.array([1.0, 2.0]), [1.0, 2.0]),
        (list[list[int]], np.array([[1], [2]]), [[1], [2]]),
        (dict[str, float], {"a": np.float64(2)}, {"a": 2.0}),
        (Any, np.int64(5), 5),
        (Any, {"a": np.int64(1)}, {"a": 1}),
    ],
)
def test_numpy_scalars_and_arrays_come_back_as_python_values(
    annotation: Any, value: object, back: object
) -> None:
    read = there_and_back(annotation, value)
    assert read == back
    assert type(read) is type(back)


def test_a_whole_number_is_kept_by_a_float_feature_as_a_float() -> None:
    back = there_and_back(float, 5)
    assert back == 5.0
    assert type(back) is float


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        *((int, "int"), (float, "float"), (bool, "bool"), (str, "text"), (datetime, "time")),
        *((int | None, "int"), (None, "json"), (type(None), "none"), (int | str, "json")),
        *((list[int], "json"), (Order, "json"), (Any, "json")),
    ],
)
def test_a_codec_knows_which_column_its_values_fit(annotation: Any, kind: str) -> None:
    assert Codec("f", annotation).kind == kind


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), np.float64("nan")])
@pytest.mark.parametrize("annotation", [float, Any])
def test_nan_and_infinities_are_refused(annotation: Any, number: float) -> None:
    assert_refused(annotation, number, "NaN and infinities have no JSON form")
    with pytest.raises(UnstorableError):
        encode_exact(number, msgspec.json.decode)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[float], [1.0, float("nan")]),
        (list[float], np.array([1.0, np.nan])),
        (dict[str, Any], {"a": {"b": (float("inf"),)}}),
        (dict[float, int], {float("nan"): 1}),
        (Point, Point(1, float("nan"))),
    ],
)
def test_a_nested_nan_is_found_at_any_depth(annotation: Any, value: object) -> None:
    assert_refused(annotation, value, "NaN and infinities have no JSON form")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - naive on purpose
        (datetime, np.datetime64("2026-01-01T00:00:00")),
        (list[datetime], [datetime.now(UTC), datetime(2026, 1, 1)]),  # noqa: DTZ001
        (Order, Order("a", datetime(2026, 1, 1))),  # noqa: DTZ001
    ],
)
def test_a_datetime_without_a_time_zone_is_refused(annotation: Any, value: object) -> None:
    assert_refused(annotation, value, "without a time zone is ambiguous")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400, np.uint64(2**64 - 1)])
@pytest.mark.parametrize("annotation", [int, float, Any])
def test_an_integer_beyond_64_bits_is_refused(annotation: Any, number: int) -> None:
    assert_refused(annotation, number, "beyond 64 bits")
    assert_refused(list[annotation], [number], "beyond 64 bits")


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_integers_of_64_bits_are_exact(number: int) -> None:
    assert there_and_back(int, number) == number


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud800": 1}])
def test_a_lone_surrogate_is_refused(value: object) -> None:
    assert_refused(Any, value, "surrogates not allowed")


def test_a_text_feature_refuses_a_lone_surrogate() -> None:
    assert_refused(str, "\ud800", "surrogates not allowed")


@pytest.mark.parametrize(
    "value", [(1, 2), {"a": (1,)}, [(1,)], {1, 2}, {1: "a"}, datetime.now(UTC)]
)
def test_values_that_json_changes_are_refused_without_an_annotation_that_restores_them(
    value: object,
) -> None:
    assert_refused(Any, value, "it would decode to")
    assert_refused(object, value, "it would decode to")


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (int, "5", "Expected `int`, got `str`"),
        (int, 5.0, "Expected `int`, got `float`"),
        (int, True, "Expected `int`, got `bool`"),
        (int, None, "Expected `int`, got `null`"),
        (bool, 1, "Expected `bool`, got `int`"),
        (str, 5, "Expected `str`, got `int`"),
        (float, Decimal("1.5"), "Expected `float`, got `str`"),
        (date, datetime.now(UTC), "Invalid RFC3339 encoded date"),
        (datetime, date(2026, 1, 1), "Invalid RFC3339 encoded datetime"),
        (list[int], [1, "2"], "Expected `int`, got `str`"),
        (tuple[int, int], (1, 2, 3), "Expected `array` of length 2"),
        (Point, {"x": 1}, "missing required field `y`"),
        (Any, object(), "object has no JSON form"),
        (Any, 1j, "complex has no JSON form"),
        (Any, print, "has no JSON form"),
    ],
)
def test_a_wrong_type_is_refused_and_never_coerced(
    annotation: Any, value: object, reason: str
) -> None:
    assert_refused(annotation, value, reason)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, UUID(int=1)),
        (str, b"abc"),
        (str, Decimal("1.5")),
        (str, datetime(2026, 1, 1, tzinfo=UTC)),
        (float, 2**53 + 1),
        (list[int], (1, 2)),
        (list[int], {1, 2}),
        (dict[str, Any], {"a": (1, 2)}),
        (dict[str, Any], {"a": datetime(2026, 1, 1, tzinfo=UTC)}),
        (dict, {1: "a"}),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1, seconds=30)))),
    ],
)
def test_values_that_come_back_changed_are_refused_under_every_annotation(
    annotation: Any, value: object
) -> None:
    with pytest.raises(FeatureValueError):
        Codec("f", annotation).encode(value)


def test_an_array_inside_an_unannotated_value_comes_back_as_a_list() -> None:
    assert there_and_back(Any, {"a": np.array([1, 2])}) == {"a": [1, 2]}


def test_a_bottomless_value_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert_refused(Any, deep, "recursion")


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(FeatureValueError) as caught:
        Codec("f", int).encode("x" * 10_000)
    assert len(str(caught.value)) < 300


def test_a_stored_value_that_a_new_annotation_does_not_describe_is_refused() -> None:
    with pytest.raises(FeatureValueError, match="feature 'f' was stored as true, which is not int"):
        Codec("f", int).decode(b"true")


def test_a_nan_is_refused_because_it_does_not_equal_its_copy() -> None:
    assert_refused(Decimal, Decimal("NaN"), "it would decode to a value that is not equal")
