"""Answers to both sides of the contexts whose text changed, and their scores.

Both come from functions of the user. They are outcomes of the evaluation: a file in the folder of
the run has them, so that nothing is asked twice, and the store has none.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from headwater.contexts.evaluation.results import RunFolder
from headwater.contexts.evaluation.significance import compare
from headwater.declarations.function_checks import source_hash
from headwater.messages.parsing import Dumpable
from headwater.model.evaluations import (
    AnswerReport,
    ChangedRecord,
    EvaluationProgress,
    OnEvaluated,
    ScorePair,
)
from headwater.model.lineage import PastContext
from headwater.records.document import load
from headwater.records.projection import past_context
from headwater.records.sealing import open_core

Side = Literal["before", "after"]
RecordedAnswer = Callable[[str], Awaitable[str | None]]
"""Returns the recorded answer to a context, if there is one."""
_RECORDED = "recorded"
_LONGEST_PROBLEM = 200
_MOST_PROBLEMS = 20


class UserFunction(NamedTuple):
    """A function of the user, and its name as ``module:function``."""

    name: str
    function: Callable[..., Any]

    @property
    def key(self) -> str:
        """The name and the source: what another function returned is asked for again."""
        return f"{self.name} {source_hash(self.function)}"

    async def call(self, *arguments: Any) -> Any:
        """Return what the function returns; one that is not async runs in a thread."""
        if iscoroutinefunction(self.function):
            return await self.function(*arguments)
        result = await asyncio.to_thread(self.function, *arguments)
        return await result if isawaitable(result) else result


class AnswerOptions(NamedTuple):
    """What is asked, of how many contexts at a time, and whether recorded answers are used."""

    answer: UserFunction
    score: UserFunction | None = None
    concurrency: int = 4
    is_recorded_used: bool = False


class AnswerLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of ``answers.jsonl``: an answer to one side of a context, or the scores of one."""

    context_id: str
    side: Side
    by: str
    answer: Any = None
    scores: Mapping[str, float] | None = None

    @property
    def key(self) -> tuple[str, Side, str]:
        """The side that was asked about, and the functions."""
        return (self.context_id, self.side, self.by)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnswerLine).decode


class AnswerFile:
    """The answers and scores of a run; answers stay in the file until they are needed."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "answers.jsonl"
        self._file: BinaryIO
        self._places: dict[tuple[str, Side, str], int] = {}
        self._end = 0

    def __enter__(self) -> Self:
        self._file = _opened(self._path)
        for line in self._file:
            self._places[_decode(line).key] = self._end
            self._end += len(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._file.close()

    def get(self, context_id: str, side: Side, by: str) -> AnswerLine | None:
        """Return a line; None if it is not there yet."""
        place = self._places.get((context_id, side, by))
        if place is None:
            return None
        self._file.seek(place)
        return _decode(self._file.readline())

    def add(self, line: AnswerLine) -> AnswerLine:
        """Append a line, and return it as it will be read."""
        encoded = _encode(line) + b"\n"
        self._file.seek(self._end)
        self._file.write(encoded)
        self._file.flush()
        self._places[line.key] = self._end
        self._end += len(encoded)
        return _decode(encoded)


def _opened(path: Path) -> BinaryIO:
    """Open a file of lines for reading and appending, without a line that was not finished."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    end = sum(len(line) for line in file if line.endswith(b"\n"))
    file.truncate(end)
    file.seek(0)
    return file


async def answer_changed(
    folder: RunFolder,
    options: AnswerOptions,
    recorded: RecordedAnswer,
    progress: OnEvaluated | None = None,
) -> AnswerReport:
    """Ask for answers to both sides of the contexts whose text changed, and compare their scores.

    What an interrupted call has asked is not asked again. A function that fails is counted, and is
    called again next time.
    """
    asking = _Asking(folder, options, recorded, progress)
    with asking.file:
        async with asyncio.TaskGroup() as group:
            for _ in range(options.concurrency):
                group.create_task(asking.ask())
    # Contexts are done in any order, and sums of floats depend on it.
    asking.pairs.sort(key=lambda pair: (pair.score, pair.context_id))
    folder.write_scores(asking.pairs)
    return asking.report()


class _Asking:
    """The calls for one run, which share the iterator of its contexts."""

    def __init__(
        self,
        folder: RunFolder,
        options: AnswerOptions,
        recorded: RecordedAnswer,
        progress: OnEvaluated | None,
    ) -> None:
        self.file = AnswerFile(folder)
        self._options = options
        self._recorded = recorded
        self._progress = progress
        texts = {
            context.context_id: context.compared_with == "record"
            for context in folder.contexts()
            if context.status == "changed" and context.is_text_changed
        }
        self._is_of_record = texts
        self._changed = (each for each in folder.changes() if each.context_id in texts)
        self._counts: Counter[str] = Counter()
        self._problems: Counter[str] = Counter()
        self.pairs: list[ScorePair] = []

    async def ask(self) -> None:
        """Ask about one context after the other, until there is none left."""
        for changed in self._changed:
            await self._about(changed)
            self._counts["done"] += 1
            if self._progress is not None:
                total = len(self._is_of_record)
                self._progress(EvaluationProgress(self._counts["done"], total, "answer"))

    def report(self) -> AnswerReport:
        """Return the findings, once the pairs are sorted."""
        options = self._options
        return AnswerReport(
            answer=options.answer.name,
            score=None if options.score is None else options.score.name,
            contexts=len(self._is_of_record),
            answered=self._counts["answered"],
            recorded=self._counts["recorded"],
            withheld=self._counts["withheld"],
            problems=dict(self._problems.most_common()),
            scores=tuple(
                compare(name, list(pairs))
                for name, pairs in groupby(self.pairs, key=attrgetter("score"))
            ),
        )

    async def _about(self, changed: ChangedRecord) -> None:
        before, after = _context(changed.before), _context(changed.after)
        if before.content is None or after.content is None:
            self._counts["withheld"] += 1
            return
        # Both sides have the id of the recorded one in the file.
        context_id = changed.context_id
        one = await self._answer(context_id, "before", before)
        two = None if one is None else await self._answer(context_id, "after", after)
        if one is None or two is None:
            return
        self._counts["answered"] += 1
        self._counts["recorded"] += one.by == _RECORDED
        if (score := self._options.score) is not None:
            was = await self._scores(score, before, one)
            now = await self._scores(score, after, two) if was else {}
            self.pairs += [
                ScorePair(score=name, context_id=context_id, before=was[name], after=now[name])
                for name in was.keys() & now.keys()
            ]

    async def _answer(self, context_id: str, side: Side, context: PastContext) -> AnswerLine | None:
        """Return the answer to a side; None if there is none."""
        function = self._options.answer
        is_recorded = side == "before" and self._is_of_record[context_id]
        if is_recorded and self._options.is_recorded_used:
            text = await self._recorded(context_id)
            if text is not None:
                return AnswerLine(context_id=context_id, side=side, by=_RECORDED, answer=text)
        line = self.file.get(context_id, side, function.key)
        if line is not None:
            return line
        try:
            answer = _plain(await function.call(context))
        except Exception as error:  # noqa: BLE001 - a function of the user may raise anything
            self._count(function, error)
            return None
        return self.file.add(
            AnswerLine(context_id=context_id, side=side, by=function.key, answer=answer)
        )

    async def _scores(
        self, function: UserFunction, context: PastContext, answered: AnswerLine
    ) -> Mapping[str, float]:
        """Return the scores of an answer by name; none if the function fails."""
        by = f"{function.key} of {answered.by}"
        line = self.file.get(answered.context_id, answered.side, by)
        if line is not None:
            return line.scores or {}
        try:
            scores = _numbers(function.name, await function.call(context, answered.answer))
        except Exception as error:  # noqa: BLE001 - a function of the user may raise anything
            self._count(function, error)
            return {}
        return self.file.add(replace(answered, by=by, answer=None, scores=scores)).scores or {}

    def _count(self, function: UserFunction, error: Exception) -> None:
        kind, text = type(error).__name__, " ".join(str(error).split())
        problem = f"{function.name}: {kind}: {text}"[:_LONGEST_PROBLEM]
        if problem not in self._problems and len(self._problems) >= _MOST_PROBLEMS:
            problem = f"{function.name}: {kind}"
        self._problems[problem] += 1


def _context(document: Mapping[str, Any]) -> PastContext:
    record = load(msgspec.json.encode(document))
    return past_context(record, open_core(record))


def _plain(answer: object) -> Any:
    """Return an answer as JSON can hold it; raise TypeError if it cannot."""
    if answer is None:
        raise TypeError("it returned None; return the answer as text or as a JSON value")
    if isinstance(answer, Dumpable):
        answer = answer.model_dump(exclude_none=True)
    return msgspec.to_builtins(answer, str_keys=True)


def _numbers(function: str, scores: object) -> dict[str, float]:
    """Return scores by name; one without a name has that of its function."""
    bare = {function.rpartition(":")[2]: scores}
    named: Mapping[Any, Any] = scores if isinstance(scores, Mapping) else bare
    numbers = {str(name): value for name, value in named.items() if value is not None}
    for name, value in numbers.items():
        # Numbers of NumPy are numbers, too, and text is not.
        if isinstance(value, str | bytes) or not math.isfinite(float(value)):
            raise TypeError(
                f"the score {name!r} is {value!r}; return a number, True or False, or a mapping "
                "of names to them"
            )
    return {name: float(value) for name, value in numbers.items()}
