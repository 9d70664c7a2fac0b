"""Progress of long calls: a bar on a terminal or in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from headwater.core.blocking import in_notebook

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., None])

SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_PICTURES = 0.1

Show = Callable[[str, int, int | None], None]
"""Called with what is counted, how many are done, and the number of all, if it is known."""


class Step(Protocol):
    """How far a call is that reports more than two numbers."""

    @property
    def label(self) -> str: ...

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int | None: ...


def with_bar(
    verb: Callable[P, Coroutine[Any, Any, T]], title: str = ""
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Show a bar where a verb is called with ``progress=True``."""
    shown_title = title or verb.__name__.replace("_", " ").capitalize()

    async def shown(args: tuple[Any, ...], named: dict[str, Any]) -> T:
        with progress_bar(shown_title) as report:
            return await verb(*args, **{**named, "progress": report})

    @wraps(verb)
    def call(*args: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        if named.get("progress") is True:
            return shown(args, named)
        return verb(*args, **named)

    return call


def callback(progress: F | Literal[True, False] | None) -> F | None:
    """Return the function that a verb reports to; `with_bar` has put one in place of True."""
    return None if isinstance(progress, bool) else progress


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[..., None]]:
    """Show progress; yield a function of the numbers done and of all, or of a `Step`."""
    with _shown(title) as show:

        def report(*step: Any) -> None:
            if len(step) == 1:
                show(step[0].label, step[0].done, step[0].total)
            else:
                show("", *step)

        yield report


@contextmanager
def _shown(title: str) -> Iterator[Show]:
    if sys.stderr.isatty():
        with _terminal(title) as show:
            yield show
    elif in_notebook():
        with _notebook(title) as show:
            yield show
    else:
        lines = ProgressLines()

        def show(label: str, done: int, total: int | None) -> None:
            if lines.is_due(label):
                print(_text(title, label, done, total), file=sys.stderr)  # noqa: T201 - asked for

        yield show


def _text(title: str, label: str, done: int, total: int | None) -> str:
    counted = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    return f"{title}: {counted}{f' {label}' if label else ''}"


@contextmanager
def _terminal(title: str) -> Iterator[Show]:
    from rich.progress import (  # noqa: PLC0415 - takes long to load
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    counts = (MofNCompleteColumn(), TextColumn("{task.fields[label]}"), TimeRemainingColumn())
    with bar(TextColumn(title), BarColumn(), *counts, label="") as update:

        def show(label: str, done: int, total: int | None) -> None:
            if update is not None:
                update(label=label, completed=done, total=total)

        yield show


@contextmanager
def bar(*columns: Any, **fields: Any) -> Iterator[Callable[..., None] | None]:
    """Yield the function that updates a bar with columns of rich, or None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - takes long to load
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield partial(progress.update, progress.add_task("", total=None, **fields))


@contextmanager
def _notebook(title: str) -> Iterator[Show]:
    """Show a bar below the cell, and at the end the count and the duration."""
    from headwater.core import html  # noqa: PLC0415 - only notebooks need it

    started = drawn = time.monotonic()
    last: tuple[str, int, int | None] = ("", 0, None)
    shown = import_module("IPython.display")
    picture = shown.display(shown.HTML(html.faint(f"{title} …")), display_id=True)

    def show(label: str, done: int, total: int | None) -> None:
        nonlocal drawn, last
        last, now = (label, done, total), time.monotonic()
        if now - drawn >= _SECONDS_BETWEEN_PICTURES:
            drawn = now
            meter = "" if total is None else html.meter(done, total)
            picture.update(shown.HTML(f"{meter} {html.text(_text(title, *last))}"))

    yield show
    seconds = time.monotonic() - started
    picture.update(shown.HTML(html.faint(f"{_text(title, *last)} in {seconds:.1f} s")))


class ProgressLines:
    """Decides when progress is printed as a line: when its phase changes, and every ten seconds."""

    def __init__(self, phase: str = "") -> None:
        self._phase = phase
        self._printed = time.monotonic()

    def is_due(self, phase: str = "") -> bool:
        """Return whether to print a line now."""
        now = time.monotonic()
        if phase == self._phase and now - self._printed < SECONDS_BETWEEN_LINES:
            return False
        self._phase, self._printed = phase, now
        return True
