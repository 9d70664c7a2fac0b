"""The file of a cohort: lines of canonical JSON, the last of which seals all before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Self, TypeVar

import msgspec
from msgspec.structs import replace

from headwater.core.canonical_json import canonical, from_tagged, to_tagged
from headwater.errors import CohortError, InvalidInputError, RecordValueError
from headwater.model.contexts import Check
from headwater.model.evaluations import CohortEntry, CohortHeader, CohortSeal
from headwater.records.checks import Outline, Reading, check_signature
from headwater.records.record import Form, Sealed, Signature, Statement, moment_text
from headwater.records.signing import parse_keyring
from headwater.settings.schema import Settings

FORMAT = "headwater-cohort-1"
_NO_SEAL = "it ends without the line that seals it, so it was cut off"
T = TypeVar("T")


class _CohortStatement(
    Statement,
    frozen=True,
    kw_only=True,
    rename={"sealed_hash": "cohort_hash", "sealed_id": "name"},
):
    """The signed statement about a cohort."""

    sealed_hash: str
    sealed_id: str


class SealedCohort(Sealed, frozen=True, kw_only=True):
    """A cohort as its signature sees it: its hash stands for the bytes, which may be large."""

    FORM: ClassVar[Form] = Form(
        "cohort", "a cohort", FORMAT, "cohort_hash", "name", _CohortStatement
    )
    name: str
    cohort_hash: str
    created_at: datetime

    @property
    def sealed_id(self) -> str:
        return self.name

    @property
    def sealed_hash(self) -> str:
        return self.cohort_hash

    def made_at(self) -> datetime:
        return self.created_at


class Portion(NamedTuple):
    """A part of a cohort: where its first line begins, and how many contexts it has."""

    offset: int
    size: int


class Cohort(msgspec.Struct, frozen=True):
    """A cohort whose seal was checked when it was opened."""

    path: str
    header: CohortHeader
    seal: CohortSeal

    @classmethod
    def open(cls, path: Path, settings: Settings) -> Cohort:
        """Open a cohort; raise CohortError unless it is as it was sealed.

        A signature is needed where records are signed: if a key is configured.
        """
        digest, last, lines = sha256(), b"", 0
        with path.open("rb") as file:
            for line in file:
                digest.update(last)
                last, lines = line, lines + 1
            file.seek(0)
            first = file.readline()
        seal, actual = _read(last, CohortSeal), f"sha256:{digest.hexdigest()}"
        if seal is None:
            raise CohortError(str(path), _NO_SEAL)
        if actual != seal.cohort_hash:
            raise CohortError(str(path), _altered(path, lines, actual, seal))
        header = _read(first, CohortHeader)
        if header is None or header.format != FORMAT:
            raise CohortError(str(path), f"line 1 is not the header of a cohort in {FORMAT!r}")
        check = _check_signature(header, seal, settings)
        if check.ok is False:
            raise CohortError(str(path), check.detail)
        return cls(str(path), header, seal)

    def portions(self, size: int) -> list[Portion]:
        """Divide the contexts into portions of this size, the last of which may be smaller."""
        portions = []
        with Path(self.path).open("rb") as file:
            offset, left = len(file.readline()), self.seal.count
            while left > 0:
                count = min(size, left)
                portions.append(Portion(offset, count))
                offset, left = offset + sum(map(len, islice(file, count))), left - count
        return portions

    def entries(self, offset: int | None = None, size: int | None = None) -> Iterator[CohortEntry]:
        """Yield the contexts of a portion, or all of them."""
        with Path(self.path).open("rb") as file:
            if offset is None:
                file.readline()
            else:
                file.seek(offset)
            for line in islice(file, self.seal.count if size is None else size):
                yield _entry(line)


def _entry(line: bytes) -> CohortEntry:
    entry = msgspec.json.decode(line, type=CohortEntry)
    return replace(entry, inputs=from_tagged(entry.inputs))


def _read(line: bytes, kind: type[T]) -> T | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(line, type=kind)
    return None


def _altered(path: Path, lines: int, actual: str, seal: CohortSeal) -> str:
    """Return how the lines of a file differ from the sealed ones, as far as that is known."""
    with path.open("rb") as file:
        for number, line in enumerate(islice(file, 1, lines - 1), 2):
            try:
                _entry(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RecordValueError):
                return f"line {number} is not a context; it was altered"
    if lines - 2 != seal.count:
        return f"it has {lines - 2} contexts, and {seal.count} were sealed"
    return f"its lines hash to {actual} and not to {seal.cohort_hash}: one of them was altered"


def _check_signature(header: CohortHeader, seal: CohortSeal, settings: Settings) -> Check:
    keyring, made_at = parse_keyring(settings.signing_key), moment_text(header.created_at)
    signature = None
    if seal.statement is not None and seal.signature is not None:
        signature = Signature(seal.statement, seal.signature)
    sealed = SealedCohort(
        core=b"",
        name=header.name,
        cohort_hash=seal.cohort_hash,
        created_at=header.created_at,
        signature=signature,
    )
    reading = Reading(seal.cohort_hash, Outline(FORMAT, header.name, made_at))
    required = bool(keyring.keys) and settings.signature_mode != "off"
    return check_signature(sealed, reading, keyring, required=required)


Signed = Callable[[SealedCohort, datetime], SealedCohort]


class CohortWriter:
    """Writes a cohort line by line; the file is there as a whole, after `seal`, or not at all."""

    def __init__(self, path: Path, header: CohortHeader, *, replaces: bool = False) -> None:
        self._path = path
        self._header = header
        self._replaces = replaces
        self._digest = sha256()
        self._count = 0
        self._partial = path.with_name(f".{path.name}-{os.getpid()}")

    def __enter__(self) -> Self:
        self._check_new()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("wb")
        self._write(canonical(self._header))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def add(self, entry: CohortEntry) -> None:
        """Add a context."""
        inputs = {name: to_tagged(value) for name, value in entry.inputs.items()}
        self._write(canonical(replace(entry, inputs=inputs)))
        self._count += 1

    def seal(self, signed: Signed) -> Cohort:
        """Seal the file, which may be signed, and move it to its place."""
        header = self._header
        sealed = SealedCohort(
            core=b"",
            name=header.name,
            cohort_hash=f"sha256:{self._digest.hexdigest()}",
            created_at=header.created_at,
        )
        signature = signed(sealed, header.created_at).signature
        seal = CohortSeal(
            count=self._count,
            cohort_hash=sealed.cohort_hash,
            statement=None if signature is None else signature.statement,
            signature=None if signature is None else signature.signature,
        )
        self._write(canonical(seal))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._check_new()
        self._partial.replace(self._path)
        return Cohort(str(self._path), header, seal)

    def _write(self, line: bytes) -> None:
        self._digest.update(line + b"\n")
        self._file.write(line + b"\n")

    def _check_new(self) -> None:
        if not self._replaces and self._path.exists():
            raise InvalidInputError(
                f"there is a cohort {self._path} already; give another name, or --force to "
                "replace it"
            )
