"""Every row of the benchmarks is measured once, in a round too short to count."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import process, production, report, rounds
from bench.case import TINY, Case, Contestant, NotInstalledError, TimesPeer
from bench.cases import CASES
from bench.startup import HEADWATER
from tests.fork_server import Copy, ForkServer, Order


def is_foreign(contestant: Contestant | None) -> bool:
    """Return whether a contestant is installed into an environment of its own."""
    return contestant is not None and contestant.__module__.endswith(".peer")


@contextmanager
def skipped_unless_installed() -> Iterator[None]:
    try:
        yield
    except NotInstalledError as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def _shared(
    copied: ForkServer, redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use the servers of the other tests, and start our programs as copies of one process."""

    def start(
        command: Sequence[str], *, env: dict[str, str], cwd: Path, **streams: Any
    ) -> Copy | subprocess.Popen[str]:
        match command:
            case [program, *arguments] if program == str(HEADWATER):
                module = "headwater"
            case [program, "-m", module, *arguments] if program == sys.executable:
                pass
            case _:
                return subprocess.Popen(command, env=env, cwd=cwd, **streams)
        order = Order(module, list(arguments), env, str(cwd))
        return copied.run(order, [streams[name] for name in ("stdin", "stdout", "stderr")])

    monkeypatch.setattr(process, "start", start)
    monkeypatch.setenv("HEADWATER_TEST_REDIS_URL", redis_url)
    monkeypatch.setenv("HEADWATER_TEST_POSTGRES_URL", postgres_url)
    production.redis_url.cache_clear()
    production.postgres_url.cache_clear()


# They start several interpreters each, and take as long as all others together.
SLOW = {
    "backfill",
    "backfill, 2 processes",
    "evaluation",
    "HTTP context, 2 processes",
    "HTTP read of 100 values, 2 processes",
    "redis rolling restart, gap p95",
}
assert {case.name for case in CASES} > SLOW


def marks(case: Case) -> list[pytest.MarkDecorator]:
    if is_foreign(case.floor):
        return [pytest.mark.peer]
    return [pytest.mark.chaos] if case.name in SLOW else []


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=marks(case), id=case.name) for case in CASES]
)
def test_a_case_measures_us_and_the_floor(case: Case) -> None:
    if case.floor is not None and is_foreign(case.floor):
        with skipped_unless_installed(), case.floor(TINY):
            pass
    outcome = rounds.run(case, TINY, with_peer=not is_foreign(case.peer))

    assert outcome.failures == {}
    targets = [target for target in case.targets if not isinstance(target, TimesPeer)]
    assert None not in [target.met(outcome.figures) for target in targets]
    report.write(Console(file=StringIO()), [outcome])


@pytest.mark.peer
@pytest.mark.parametrize(
    "contestant",
    [pytest.param(case.peer, id=case.name) for case in CASES if is_foreign(case.peer)],
)
def test_a_peer_that_can_be_installed_is_measured(contestant: Contestant) -> None:
    with skipped_unless_installed(), contestant(TINY) as measure:
        assert measure().value > 0
