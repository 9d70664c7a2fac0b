"""The folder of a run: what it evaluates, the results of its portions, and its report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from headwater.errors import UnknownEvaluationError
from headwater.model.evaluations import (
    ChangedRecord,
    EvaluatedContext,
    EvaluationReport,
    EvaluationRun,
    ScorePair,
)

_encode = msgspec.json.Encoder().encode
_decode_context = msgspec.json.Decoder(EvaluatedContext).decode
_decode_changed = msgspec.json.Decoder(ChangedRecord).decode
_decode_pair = msgspec.json.Decoder(ScorePair).decode
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
    def is_begun(self) -> bool:
        """Whether the evaluated code is known."""
        return (self.path / "run.json").exists()

    @property
    def report(self) -> EvaluationReport | None:
        """The report; None until the run is finished."""
        try:
            return _decode_report((self.path / "report.json").read_bytes())
        except FileNotFoundError:
            return None

    def used_at(self) -> float:
        """Return when the run was begun, or concluded for the last time."""
        files = (self.path / name for name in ("run.json", "report.json"))
        return max(file.stat().st_mtime for file in files if file.exists())

    def begin(self, run: EvaluationRun) -> None:
        """Write what is evaluated, which is not for a repository: it has texts and values."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path.parent / ".gitignore").write_text("*\n")
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

    def changes(self) -> Iterator[ChangedRecord]:
        """Yield both sides of all contexts that changed."""
        for part in sorted(self.path.glob("part-*.changed.jsonl")):
            with part.open("rb") as lines:
                yield from map(_decode_changed, lines)

    def write_scores(self, pairs: Iterable[ScorePair]) -> None:
        """Write the scores of the answers to both sides of contexts."""
        _write(self.path / "scores.jsonl", _lines(pairs))

    def scores(self) -> Iterator[ScorePair]:
        """Yield the scores of the answers to both sides; none if nothing was asked."""
        file = self.path / "scores.jsonl"
        if file.exists():
            with file.open("rb") as lines:
                yield from map(_decode_pair, lines)

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


def cohorts_in(folder: Path) -> list[str]:
    """Return the names of the cohorts of a folder, and of those of which only runs are left."""
    frozen = {file.stem for file in folder.glob("*.cohort")}
    return sorted(frozen | {file.parent.parent.name for file in folder.glob("*/*/run.json")})


def runs_of(folder: Path, cohort: str) -> list[RunFolder]:
    """Return the runs of a cohort, the last used first; raise if there is no such cohort."""
    names = cohorts_in(folder)
    if cohort not in names:
        raise UnknownEvaluationError("cohort", cohort, names)
    runs = [RunFolder(file.parent) for file in (folder / cohort).glob("*/run.json")]
    return sorted(runs, key=RunFolder.used_at, reverse=True)


def find_run(folder: Path, cohort: str, run_id: str | None = None) -> RunFolder:
    """Return the last run of a cohort, or the one whose id begins like this; raise otherwise."""
    runs = runs_of(folder, cohort)
    found = [run for run in runs if run.run.run_id.startswith(run_id or "")]
    if not found or (run_id and len(found) > 1):
        ids = [run.run.run_id for run in found or runs]
        raise UnknownEvaluationError("run", run_id or cohort, ids)
    return found[0]


def _lines(values: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(_encode(value) + b"\n" for value in values)


def _write(path: Path, text: bytes) -> None:
    """Write a file as a whole or not at all, also if this process is killed meanwhile."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)
