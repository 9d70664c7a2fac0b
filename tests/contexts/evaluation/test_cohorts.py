"""The file of a cohort: written as a whole, sealed like a record, read in portions."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from msgspec.structs import asdict

from headwater.contexts.evaluation.cohort import Cohort, CohortWriter, Signed
from headwater.errors import CohortError, InvalidInputError
from headwater.model.evaluations import CohortEntry, CohortHeader
from headwater.records.signing import generate_key, parse_keyring, sign
from headwater.settings.schema import Settings

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
UNSIGNED = Settings()


def header(name: str = "october") -> CohortHeader:
    return CohortHeader(
        name=name,
        created_at=NOON,
        chosen={"context": "support"},
        features="features.py",
        code={"features.py": "store = ..."},
    )


def entries(number: int) -> Iterator[CohortEntry]:
    for at in range(number):
        yield CohortEntry(
            context_id=f"context-{at}",
            record_hash=f"sha256:{at:064}",
            name="support",
            created_at=NOON + timedelta(seconds=at),
            inputs={"user_id": f"u{at}", "amount": Decimal("1.10"), "share": 0.5, "day": NOON},
        )


def unsigned(sealed: Any, at: datetime) -> Any:
    return sealed


def signed_with(key: str) -> Signed:
    return lambda sealed, at: sign(sealed, parse_keyring(key), at)


def write(path: Path, number: int = 10, signed: Signed = unsigned) -> Cohort:
    with CohortWriter(path, header()) as writer:
        for entry in entries(number):
            writer.add(entry)
        return writer.seal(signed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evals" / "october.cohort"


def test_a_cohort_is_read_as_it_was_frozen(path: Path) -> None:
    written = write(path)
    cohort = Cohort.open(path, UNSIGNED)
    assert cohort == written
    assert (cohort.header, cohort.seal.count) == (header(), 10)
    assert list(cohort.entries()) == list(entries(10))


@pytest.mark.parametrize("size", [1, 3, 10, 11])
def test_portions_have_every_context_once_and_in_order(path: Path, size: int) -> None:
    cohort = write(path)
    portions = cohort.portions(size)
    assert [portion.size for portion in portions[:-1]] == [size] * (len(portions) - 1)
    assert [entry for each in portions for entry in cohort.entries(*each)] == list(entries(10))


def test_a_cohort_without_contexts_has_no_portions(path: Path) -> None:
    assert write(path, 0).portions(5) == []
    assert list(Cohort.open(path, UNSIGNED).entries()) == []


@pytest.mark.parametrize("line", range(12))
def test_an_altered_line_is_refused(path: Path, line: int) -> None:
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    altered = [*lines[:line], lines[line].replace(b"1", b"2", 1), *lines[line + 1 :]]
    path.write_bytes(b"".join(altered))
    with pytest.raises(CohortError, match=r"october.cohort cannot be used: .* freeze it again"):
        Cohort.open(path, UNSIGNED)


def test_the_error_names_the_line_that_is_no_context(path: Path) -> None:
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"{}\n", *lines[5:]]))
    with pytest.raises(CohortError, match="line 5 is not a context"):
        Cohort.open(path, UNSIGNED)


def test_a_removed_context_is_refused(path: Path) -> None:
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    with pytest.raises(CohortError, match="it has 9 contexts, and 10 were sealed"):
        Cohort.open(path, UNSIGNED)


@pytest.mark.parametrize("kept", [0, 100, 1_500])
def test_a_file_that_was_cut_off_is_refused(path: Path, kept: int) -> None:
    write(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CohortError, match="it was cut off"):
        Cohort.open(path, UNSIGNED)


def test_a_cohort_of_another_format_is_refused(path: Path) -> None:
    other = CohortHeader(**{**asdict(header()), "format": "headwater-cohort-9"})
    with CohortWriter(path, other) as writer:
        writer.seal(unsigned)
    with pytest.raises(CohortError, match="line 1 is not the header of a cohort in"):
        Cohort.open(path, UNSIGNED)


def test_a_cohort_is_signed_like_a_record(path: Path) -> None:
    key, other = (generate_key("2026-11", "HMAC-SHA256") for _ in range(2))
    write(path, signed=signed_with(key))
    Cohort.open(path, Settings(signing_key=key))
    Cohort.open(path, UNSIGNED)
    with pytest.raises(CohortError, match="did not sign this statement"):
        Cohort.open(path, Settings(signing_key=other))


def test_an_unsigned_cohort_is_refused_where_records_are_signed(path: Path) -> None:
    key = generate_key("2026-11", "HMAC-SHA256")
    write(path)
    with pytest.raises(CohortError, match="not signed, although there are keys"):
        Cohort.open(path, Settings(signing_key=key))
    Cohort.open(path, Settings(signing_key=key, signature_mode="off"))


def test_a_cohort_is_there_as_a_whole_or_not_at_all(path: Path) -> None:
    def fail(sealed: Any, at: datetime) -> Any:
        raise KeyError

    with pytest.raises(KeyError):
        write(path, signed=fail)
    assert list(path.parent.iterdir()) == []


def test_a_cohort_is_replaced_only_on_request(path: Path) -> None:
    write(path)
    with pytest.raises(InvalidInputError, match=r"there is a cohort .* already"):
        write(path, 2)
    with CohortWriter(path, header(), replaces=True) as writer:
        writer.seal(unsigned)
    assert Cohort.open(path, UNSIGNED).seal.count == 0


WRITING = """
import sys
from pathlib import Path
from headwater.contexts.evaluation.cohort import CohortWriter
from tests.contexts.evaluation.test_cohorts import entries, header

with CohortWriter(Path(sys.argv[1]), header()) as writer:
    for entry in entries(10_000):
        writer.add(entry)
    print("written", flush=True)
    sys.stdin.read()
"""


def test_killed_while_writing_it_leaves_no_cohort(path: Path) -> None:
    command = [sys.executable, "-c", WRITING, str(path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
    assert not path.exists()
    assert write(path) == Cohort.open(path, UNSIGNED)


def test_memory_does_not_grow_with_the_cohort(path: Path) -> None:
    tracemalloc.start()
    with CohortWriter(path, header()) as writer:
        for entry in entries(20_000):
            writer.add(entry)
        writer.seal(unsigned)
    cohort = Cohort.open(path, UNSIGNED)
    portions = cohort.portions(1_000)
    assert sum(1 for each in portions for _ in cohort.entries(*each)) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 5_000_000
    assert peak < 1_000_000
