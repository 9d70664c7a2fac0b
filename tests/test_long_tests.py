"""The list of long tests names tests that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import long_tests

ROOT = Path(__file__).parents[1]


def test_each_long_test_is_a_function_or_in_a_class_of_its_file() -> None:
    for name in long_tests.NAMES.read_text().split():
        file, *test = name.split("::")
        assert (ROOT / file).exists(), name
        assert not test or test[0] in (ROOT / file).read_text(), name


def test_the_list_is_sorted_and_names_nothing_twice() -> None:
    names = long_tests.NAMES.read_text().split()
    assert names == sorted(set(names))


def test_a_measurement_names_what_took_long_and_keeps_what_was_named_by_hand(
    tmp_path: Path,
) -> None:
    file = tmp_path / "long.txt"
    file.write_text("tests/by_hand\ntests/test_a.py::test_that_became_quick\n")
    measurement = long_tests.Measurement(file)
    for node, duration in [
        ("tests/test_a.py::test_of_two_parts[one]", 0.3),
        ("tests/test_a.py::test_of_two_parts[one]", 0.3),
        ("tests/test_a.py::test_of_two_cases[one]", 0.3),
        ("tests/test_a.py::test_of_two_cases[two]", 0.3),
    ]:
        measurement.pytest_runtest_logreport(
            pytest.TestReport(node, ("", 0, ""), {}, "passed", None, "call", duration=duration)
        )
    measurement.pytest_sessionfinish()
    assert file.read_text() == "tests/by_hand\ntests/test_a.py::test_of_two_parts\n"
