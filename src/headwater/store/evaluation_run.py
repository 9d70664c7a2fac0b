"""A run of an evaluation: its portions are divided among processes, and its report is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec

from headwater.contexts.evaluation.cohort import Cohort
from headwater.contexts.evaluation.rerun import INDEX
from headwater.contexts.evaluation.results import RunFolder
from headwater.contexts.evaluation.variants import Changes, Code
from headwater.core.canonical_json import canonical
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.model.evaluations import EvaluationProgress, EvaluationRun, OnEvaluated
from headwater.ports.runner import Runner
from headwater.store.base_code import load_base
from headwater.store.evaluation_task import EvaluationJob, EvaluationTask
from headwater.store.runtime import Runtime
from headwater.store.task_store import FeaturesFile


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run changes beside the code; ``indexes`` has a version or generation by name."""

    max_tokens: int | None = None
    model: str | None = None
    indexes: Mapping[str, str] = {}


async def evaluate(
    runtime: Runtime,
    cohort_file: Path,
    *,
    file: str,
    base: str,
    options: RunOptions,
    runner: Runner,
    again: bool,
    progress: OnEvaluated | None,
) -> RunFolder:
    """Evaluate a cohort with the code of a features file; continue if that was begun.

    The run is done when it returns, except for its report.
    """
    cohort = await asyncio.to_thread(Cohort.open, cohort_file, runtime.settings)
    store = await asyncio.to_thread(load_base, Path(base) if base else cohort)
    codes = Code.of(runtime_of(store).registry), Code.of(runtime.registry)
    chosen = await _options(runtime, options)
    changes = Changes(*codes, chosen)
    run_id = _run_id(cohort, codes, chosen)
    folder = RunFolder(cohort_file.with_suffix("") / run_id)
    if again and folder.path.exists():
        await asyncio.to_thread(rmtree, folder.path)
    if folder.report is not None:
        return folder
    size = runtime.settings.eval.portion
    if not folder.is_begun:
        folder.begin(
            EvaluationRun(
                run_id=run_id,
                cohort=cohort.header.name,
                cohort_hash=cohort.seal.cohort_hash,
                count=cohort.seal.count,
                file=file,
                base=base,
                options=chosen,
                changes=tuple(changes.listed()),
                started_at=runtime.clock.now(),
                portion=size,
            )
        )
    source = await asyncio.to_thread(FeaturesFile.of, file, runtime.settings)
    job = EvaluationJob(
        source=source, base=base, cohort=str(cohort_file), folder=folder.path, options=chosen
    )
    portions = await asyncio.to_thread(cohort.portions, folder.run.portion)
    waiting = [
        EvaluationTask(job=job, number=number, offset=portion.offset, size=portion.size)
        for number, portion in enumerate(portions)
        if not folder.is_done(number)
    ]
    began, before = time.monotonic(), cohort.seal.count - sum(task.size for task in waiting)
    done = before
    _show(progress, done, cohort.seal.count, None)
    async with aclosing(runner.map(waiting)) as reports:
        async for report in reports:
            done += report.contexts
            seconds = (time.monotonic() - began) / (done - before)
            _show(progress, done, cohort.seal.count, seconds * (cohort.seal.count - done))
    return folder


def _show(progress: OnEvaluated | None, done: int, total: int, seconds_left: float | None) -> None:
    if progress is not None:
        progress(EvaluationProgress(done, total, seconds_left=seconds_left))


async def _options(runtime: Runtime, options: RunOptions) -> dict[str, Any]:
    """Return the options of a run by name, with the version of each index."""
    chosen: dict[str, Any] = {}
    if options.max_tokens is not None:
        chosen["max_tokens"] = options.max_tokens
    if options.model is not None:
        chosen["model"] = options.model
    for name, version in options.indexes.items():
        index = runtime.registry.index(name)
        number, _, moment = version.partition(".")
        engine = await runtime.open()
        generations = await engine.backends.vectors.generations(index.name)
        numbers = [str(generation.number) for generation in generations]
        if number not in numbers:
            raise InvalidInputError(
                f"index {name!r} has no generation {version!r}; it has "
                f"{', '.join(numbers) or 'none'}: see `headwater index list`"
            )
        # Without a moment it is what the generation holds when the run begins.
        chosen[INDEX + name] = f"{number}.{moment or runtime.clock.micros()}"
    return chosen


def _run_id(cohort: Cohort, codes: tuple[Code, Code], options: Mapping[str, Any]) -> str:
    """Return an id that is the same for the same cohort, code and options."""
    generations = {
        name: value.partition(".")[0] if name.startswith(INDEX) else value
        for name, value in options.items()
    }
    prints = [sorted([*key, *found] for key, found in code.prints.items()) for code in codes]
    return sha256(canonical([cohort.seal.cohort_hash, prints, generations])).hexdigest()[:12]
