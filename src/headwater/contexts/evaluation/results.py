"""The folder of a run: what it evaluates, the results of its portions, and its report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from headwater.model.evaluations import (
    ChangedRecord,
    EvaluatedContext,
    EvaluationReport,
    EvaluationRun,
)

_encode = msgspec.json.Encoder().encode
_decode_context = msgspec.json.Decoder(EvaluatedContext).decode
_decode_changed = msgspec.json.Decoder(ChangedRecord).decode
_decode_run = msgspec.json.Decoder(EvaluationRun).decode
_decode_report = msgspec.json.Decoder(EvaluationReport).decode


class RunFolder:
    """The files of one run; a portion is there as a whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def run(self) -> EvaluationRun:
        """What is evaluated."""
        return _decode_run((self.path / "run.json").read_bytes())

    @property
    def report(self) -> EvaluationReport | None:
        """The report; None until the run is finished."""
        try:
            return _decode_report((self.path / "report.json").read_bytes())
        except FileNotFoundError:
            return None

    def begin(self, run: EvaluationRun) -> None:
        """Write what is evaluated."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.path / "run.json", msgspec.json.format(_encode(run)))

    def finish(self, report: EvaluationReport) -> None:
        """Write the report."""
        _write(self.path / "report.json", msgspec.json.format(_encode(report)))

    def is_done(self, number: int) -> bool:
        """Return whether a portion is done."""
        return self._part(number).exists()

    def write(
        self, number: int, contexts: Iterable[EvaluatedContext], changed: Iterable[ChangedRecord]
    ) -> None:
        """Write the results of a portion; the list of its contexts last, which makes it done."""
        _write(self._changed(number), _lines(changed))
        _write(self._part(number), _lines(contexts))

    def contexts(self) -> Iterator[EvaluatedContext]:
        """Yield the contexts of all portions that are done, in the order of the cohort."""
        for part in sorted(self.path.glob("part-*[0-9].jsonl")):
            with part.open("rb") as lines:
                yield from map(_decode_context, lines)

    def changed(self, context_id: str) -> ChangedRecord | None:
        """Return both sides of a context that changed."""
        key = context_id.encode()
        for part in sorted(self.path.glob("part-*.changed.jsonl")):
            with part.open("rb") as lines:
                for line in lines:
                    # Records are large: only the line that names the context is decoded.
                    if (
                        key in line[:200]
                        and (found := _decode_changed(line)).context_id == context_id
                    ):
                        return found
        return None

    def _part(self, number: int) -> Path:
        return self.path / f"part-{number:05}.jsonl"

    def _changed(self, number: int) -> Path:
        return self.path / f"part-{number:05}.changed.jsonl"


def _lines(values: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(_encode(value) + b"\n" for value in values)


def _write(path: Path, text: bytes) -> None:
    """Write a file as a whole or not at all, also if this process is killed meanwhile."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)
