"""The tests that take long: `make test` leaves them out, `make check` runs them.

`tests/long.txt` names them. It is a measurement, which `make long-tests` repeats. Lines that name a
file or a folder, whose imports or fixtures take long, are written by hand.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

NAMES = Path(__file__).with_name("long.txt")
MOST_SECONDS = 0.5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brief", action="store_true", help=f"leave out the tests that {NAMES.name} names"
    )
    parser.addoption(
        "--measure-long",
        action="store_true",
        help=f"name the tests that took more than {MOST_SECONDS} seconds in {NAMES.name}",
    )


def _name(node_id: str) -> str:
    return node_id.partition("[")[0]


@cache
def _names(file: Path) -> frozenset[str]:
    return frozenset(file.read_text().split())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file that is named."""
    if not config.getoption("--brief") or not collection_path.is_relative_to(config.rootpath):
        return None
    return str(collection_path.relative_to(config.rootpath)) in _names(NAMES) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--brief"):
        return
    names = _names(NAMES)
    left_out = [item for item in items if _name(item.nodeid) in names]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _name(item.nodeid) not in names]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure-long") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measurement(NAMES))


class Measurement:
    """Adds up what each case of a test took, with its fixtures, and writes the names to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        long = {_name(each) for each, took in self._seconds.items() if took > MOST_SECONDS}
        by_hand = {name for name in _names(self._file) if "::" not in name}
        self._file.write_text("".join(f"{name}\n" for name in sorted(long | by_hand)))
